from sklearn.utils.estimator_checks import parametrize_with_checks
from selfcal import SelfCalibratedClassifier
@parametrize_with_checks([SelfCalibratedClassifier("standard", max_epochs=2)], expected_failed_checks=lambda e: {"check_estimator_cloneable":"x"})
def test_x(estimator, check):
    if "cloneable" in str(check): check(estimator)
