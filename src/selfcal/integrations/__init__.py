"""Other people's tools, each optional: Lightning, MLflow and the model cards of skops.

Each is a module of its own, imported by its name, such as `selfcal.integrations.mlflow`.
"""
