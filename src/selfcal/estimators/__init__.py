"""The scikit-learn estimators: settings, input checks, splits and scaling. Their public names are in `selfcal`."""
