"""`selfcal.integrations.mlflow` and `mlflow.sklearn.autolog` with a store in a file."""

import json

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from selfcal import SelfCalibratedClassifier, recipes
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError, ModelFormatError
from selfcal.tabular.io import read_table
from selfcal.training import History
from selfcal.workflows.table_model import TableModel

mlflow = pytest.importorskip("mlflow")
pytest.importorskip("alembic", reason="a store in a file needs Alembic and SQLAlchemy")
pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own about versions of scikit-learn
from selfcal.integrations import mlflow as tracking  # noqa: E402 # needs MLflow

X, CODES = Blobs(std=1.7).sample(400, seed=0)
Y = np.array(["a", "b", "</script><script>alert(1)</script>", "d", "e"])[CODES]


@pytest.fixture(autouse=True, scope="module")
def store(tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("mlflow"), mlflow.get_tracking_uri()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        mlflow.set_tracking_uri(f"sqlite:///{folder}/store.db")
        mlflow.create_experiment("here", artifact_location=(folder / "artifacts").as_uri())
        mlflow.set_experiment("here")
        yield
        mlflow.set_tracking_uri(before)


@pytest.fixture
def autolog():
    mlflow.sklearn.autolog(log_models=False)
    yield
    mlflow.sklearn.autolog(disable=True)


def classifier(method="bo4sc", **settings):
    return SelfCalibratedClassifier(method, max_epochs=20, random_state=0, **settings)


def logged(run):
    return mlflow.get_run(run.info.run_id).data


def files(run, folder):
    return {file.path for file in mlflow.MlflowClient().list_artifacts(run.info.run_id, folder)}


class TestLogClassifier:
    def test_everything_arrives_and_the_model_is_loaded_again(self, tmp_path):
        clf = classifier().fit(X[:300], Y[:300])
        with mlflow.start_run() as run:
            report = tracking.log_classifier(clf, X[300:], Y[300:], title="Blobs")
        data = logged(run)
        assert data.metrics["accuracy"] == report.methods[0].accuracy.value
        assert data.metrics["rows"] == 100
        assert data.params["method"] == "bo4sc"
        assert data.params["max_epochs"] == "20"
        assert data.tags["verdict"] == report.methods[0].verdict.text
        expected = {f"selfcal/{name}" for name in ("model", "report.html", "report.json", "model_card.md")}
        assert files(run, "selfcal") == expected
        assert "<script>alert(1)" not in mlflow.artifacts.load_text(
            f"runs:/{run.info.run_id}/selfcal/report.html"
        )
        folder = mlflow.artifacts.download_artifacts(
            run_id=run.info.run_id, artifact_path="selfcal/model", dst_path=str(tmp_path / "again")
        )
        again = SelfCalibratedClassifier.load(folder)
        assert (again.predict_proba(X) == clf.predict_proba(X)).all()

    def test_the_history_by_steps(self):
        clf = classifier().fit(X[:300], Y[:300])
        with mlflow.start_run() as run:
            tracking.log_classifier(clf, X[300:], Y[300:])
        client = mlflow.MlflowClient()
        for curve, steps, values in [
            ("inner_loss", np.arange(1, clf.n_iter_ + 1), clf.history_.inner_loss),
            ("outer_loss", clf.history_.outer_step, clf.history_.outer_loss),
            ("selection_loss", clf.history_.selection_step, clf.history_.selection_loss),
        ]:
            points = client.get_metric_history(run.info.run_id, f"history/{curve}")
            assert [point.step for point in points] == [*steps], curve
            np.testing.assert_allclose([point.value for point in points], values)

    def test_a_long_history_is_thinned(self):
        whole, none = np.arange(5000.0), np.zeros(0)
        history = History(
            **dict.fromkeys(("outer_step", "selection_step", "snapshot_step"), none.astype(int)),
            **dict.fromkeys(("outer_loss", "selection_loss"), none),
            inner_loss=whole,
            snapshots={},
            skipped=0,
            rollback_step=none.astype(int),
            reduction_step=none.astype(int),
        )
        with mlflow.start_run() as run:
            tracking.log_history(history)
        points = mlflow.MlflowClient().get_metric_history(run.info.run_id, "history/inner_loss")
        assert len(points) == tracking.POINTS
        assert (points[0].step, points[-1].step, points[-1].value) == (1, 5000, 4999)


class TestLogFolder:
    @pytest.fixture
    def folder(self, tmp_path):
        table = tmp_path / "rows.csv"
        np.savetxt(table, np.column_stack([X, CODES]), delimiter=",", header="a,b,y", comments="")
        model = TableModel("temperature", max_epochs=5, seed=0)
        return model.fit(read_table(table), "y").save(tmp_path / "model")

    def test_the_model_folder_of_the_command(self, folder):
        (folder / "private.txt").write_text("not of the model")
        with mlflow.start_run() as run:
            report = tracking.log_folder(folder)
        numbers = json.loads((folder / "report.json").read_text())
        assert (
            logged(run).metrics["ece"] == numbers["methods"][0]["ece"]["value"] == report.methods[0].ece.value
        )
        assert logged(run).params["method"] == "temperature"
        stored = files(run, "selfcal/model")
        assert "selfcal/model/private.txt" not in stored
        assert {
            f"selfcal/model/{name}" for name in ("model.json", "report.html", "model.safetensors")
        } <= stored

    def test_a_changed_folder_is_refused(self, folder):
        (folder / "report.json").write_text("{}")
        with mlflow.start_run(), pytest.raises(ModelFormatError, match="damaged"):
            tracking.log_folder(folder)

    def test_a_model_without_a_report(self, tmp_path):
        saved = classifier("temperature").fit(X, Y).save(tmp_path / "bare")
        with mlflow.start_run(), pytest.raises(ConfigError, match="no report"):
            tracking.log_folder(saved)


@pytest.mark.usefixtures("autolog")
class TestAutolog:
    """MLflow logs scikit-learn's own classes: pipelines and searches with the classifier inside."""

    def test_a_pipeline(self):
        with mlflow.start_run() as run:
            make_pipeline(StandardScaler(), classifier("temperature")).fit(X, Y)
        assert logged(run).params["selfcalibratedclassifier__method"] == "temperature"
        assert logged(run).metrics["training_accuracy_score"] > 0.5
        assert "estimator.html" in files(run, "")

    def test_the_trees_of_a_method_are_not_taken_for_models_of_the_pipeline(self):
        clf = classifier(recipes.auto(candidates=["extra-trees"]))
        with mlflow.start_run() as run:
            make_pipeline(clf).fit(X, Y)
        assert "selfcalibratedclassifier__n_networks" in logged(run).params
        assert "ccp_alpha" not in logged(run).params

    def test_a_search(self):
        search = GridSearchCV(classifier(), {"method": ["temperature", "focal"]}, cv=2)
        with mlflow.start_run() as run:
            search.fit(X, Y)
        assert logged(run).params["best_method"] == search.best_params_["method"]
        assert logged(run).metrics["best_cv_score"] == pytest.approx(search.best_score_)

    def test_a_classifier_on_its_own_is_not_logged(self):
        with mlflow.start_run() as run:
            classifier("temperature").fit(X, Y)
        assert not logged(run).params
