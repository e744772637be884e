"""The report as a value: what `report.json` holds and the page, the card and the commands show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from selfcal.reporting._plain import from_plain, to_plain

Judgement = Literal["honest", "over", "under", "mixed"]

Finding = Literal["over", "under", ""]
"""Of a group: "over", "under", or empty if its gap could be noise."""

GroupFinding = Literal["over", "under", "mixed", ""]
"""The same, or "mixed": calibrated on average, but not at each confidence."""

BRIER_CONVENTION = "sum over the classes, 0 to 2; for two classes twice scikit-learn's default"
"""The scale of all Brier scores of a report."""


@dataclass(frozen=True)
class Estimate:
    """A score with its interval; the ends are None if they cannot be computed from so few rows, or from sums."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class NoiseFloor:
    """The ECE that a perfectly calibrated model shows by chance: mean, and 5% to 95%."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """The accuracy of the model at a confidence that many rows have.

    Attributes:
        text: The whole sentence.
        when: Its first part, which describes the rows.
        range: The interval of the accuracy, in percent.
        rows: Number of these rows.
        claimed: Their mean confidence.
        right: Their accuracy.
        low: Lower end of its interval.
        high: Upper end.
    """

    text: str
    when: str
    range: str
    rows: int
    claimed: float
    right: float
    low: float
    high: float


@dataclass(frozen=True)
class Bin:
    """A bin of the reliability diagram."""

    start: float = field(metadata={"json": "from"})
    end: float = field(metadata={"json": "to"})
    rows: int
    confidence: float
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class RangeGroup:
    """Rows in one range of confidence: mean confidence (`claimed`) and accuracy (`right`) with its interval."""

    start: float = field(metadata={"json": "from"})
    end: float = field(metadata={"json": "to"})
    rows: int
    claimed: float
    right: float
    low: float
    high: float
    finding: Finding


@dataclass(frozen=True)
class ClassGroup:
    """Rows with one predicted class: mean confidence (`claimed`) and accuracy (`right`) with its interval."""

    code: int = field(metadata={"json": "class"})
    rows: int
    claimed: float
    right: float
    low: float
    high: float
    finding: Finding


@dataclass(frozen=True)
class ClassGroups:
    """The numbers of predicted classes and of those with a finding, and the classes furthest off."""

    predicted: int
    over: int
    under: int
    groups: tuple[ClassGroup, ...]


@dataclass(frozen=True)
class RejectCurve:
    """Accepted rows and errors at each threshold on the confidence, and areas under the risk-coverage curve.

    Attributes:
        aurc: The area under the risk-coverage curve.
        excess_aurc: `aurc` minus that of the best possible order of the same predictions.
        answered_at_risk: Pairs of a risk and the largest coverage with no higher one.
        thresholds: The grid of thresholds; rows at a threshold are accepted.
        accepted: Number of rows that each threshold accepts.
        errors: Number of wrong predictions among them.
        risk_low: Lower ends of the intervals of the risk.
        risk_high: Upper ends.
        start: The index of the threshold at which the slider starts.
        cells: For each cell (true, predicted), the number of its rows that the step to the next threshold rejects.
    """

    aurc: float
    excess_aurc: float
    answered_at_risk: tuple[tuple[float, float], ...]
    thresholds: tuple[float, ...]
    accepted: tuple[int, ...]
    errors: tuple[int, ...]
    risk_low: tuple[float, ...]
    risk_high: tuple[float, ...]
    start: int
    cells: tuple[tuple[int, int, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Baseline:
    """What always predicting the base rates, the fractions of the classes among these rows, would score.

    Attributes:
        rates: The base rate of each class.
        accuracy: The largest of them.
        log_loss: The entropy of the classes.
        brier_score: The Brier score.
        roc_auc: The area under the ROC curve of predictions that are all the same.
    """

    rates: tuple[float, ...]
    accuracy: float
    log_loss: float
    brier_score: float
    roc_auc: float = 0.5


@dataclass(frozen=True)
class Usefulness:
    """Whether predictions are better than the base rates, beyond noise.

    Attributes:
        kind: "better"; "ranks" if only the order of the predictions is, not their probabilities; or "none".
        log_loss_gain: The log loss of the base rates minus that of the predictions, paired by rows.
        text: What follows, in a sentence.
    """

    kind: Literal["better", "ranks", "none"]
    log_loss_gain: Estimate
    text: str


@dataclass(frozen=True)
class ClassScores:
    """Scores of one class against all others.

    Attributes:
        code: The class.
        rows: Number of rows of the class.
        predicted: Number of rows with that prediction.
        right: Number of rows of both kinds.
        recall: Fraction of the rows of the class that are predicted; None without such rows.
        precision: Fraction of the rows with that prediction that are of the class; None without such rows.
        roc_auc: The area under the ROC curve of its probability; None without rows of the class or of others.
    """

    code: int = field(metadata={"json": "class"})
    rows: int
    predicted: int
    right: int
    recall: Estimate | None
    precision: Estimate | None
    roc_auc: Estimate | None


@dataclass(frozen=True)
class Confusion:
    """Rows by true and predicted class.

    Attributes:
        counts: For each true class, the rows of each predicted class; empty if there are very many classes.
        mistakes: The most frequent mistakes, as true class, predicted class and rows.
        kinds: The number of pairs of classes that are mistaken at all.
    """

    counts: tuple[tuple[int, ...], ...]
    mistakes: tuple[tuple[int, int, int], ...]
    kinds: int


@dataclass(frozen=True)
class GroupScores:
    """Rows of one group: mean confidence (`claimed`) and accuracy (`right`) with its interval, and the ECE.

    The interval is simultaneous for all groups of the report (Bonferroni). The noise floor is the ECE that a
    perfectly calibrated model would show on these rows by chance.
    """

    name: str
    rows: int
    claimed: float
    right: float
    low: float
    high: float
    ece: float
    noise_floor: NoiseFloor
    finding: GroupFinding


@dataclass(frozen=True)
class GroupedBy:
    """The groups that the values of a column make.

    Attributes:
        column: The column.
        text: The verdict, in a sentence.
        groups: One entry for each group.
    """

    column: str
    text: str
    groups: tuple[GroupScores, ...]


@dataclass(frozen=True)
class ColumnImportance:
    """What the values of one column are worth; intervals are simultaneous for all columns (Bonferroni).

    Attributes:
        column: The column.
        log_loss: By how much the log loss rises when the column is permuted.
        accuracy: By how much the accuracy falls.
        finding: Whether the log loss rises beyond noise.
    """

    column: str
    log_loss: Estimate
    accuracy: Estimate
    finding: bool


@dataclass(frozen=True)
class Importance:
    """Permutation importance; `permutation_importance` returns it.

    Attributes:
        columns: The columns, most important first.
        rows: Number of rows that were permuted, drawn from `of_rows`.
        of_rows: Number of rows that there were.
        n_repeats: Number of permutations of each column.
        seed: Seed of the draws.
        text: What was measured, in a sentence.
    """

    columns: tuple[ColumnImportance, ...]
    rows: int
    of_rows: int
    n_repeats: int
    seed: int
    text: str


@dataclass(frozen=True)
class Provenance:
    """Where a report comes from.

    Attributes:
        date: The day on which it was made, in ISO 8601.
        command: The command that made it, without options that only say where to; empty if made from Python.
        files: The files that were read.
        of_model: Whether it is on a model that the command line can predict with, and not on predictions alone.
    """

    date: str
    command: str = ""
    files: tuple[str, ...] = ()
    of_model: bool = False


@dataclass(frozen=True)
class Mistake:
    """A row with a wrong prediction; classes are codes."""

    row: str
    answered: int
    true: int
    confidence: float
    probability_of_true: float


@dataclass(frozen=True)
class SuspectLabel:
    """A row whose label looks wrong."""

    row: int
    given: str
    suggested: str
    suspicion: float


@dataclass(frozen=True)
class SuspectLabels:
    """An audit of labels, with the first flagged rows."""

    audited: int
    noise_rate: float
    flagged: int
    false_alarms: float
    expected_false_alarms: float
    rows: tuple[SuspectLabel, ...]
    summary: str


@dataclass(frozen=True)
class StrangeColumn:
    """How often a column makes a row strange; the interval is simultaneous for all columns (Bonferroni).

    Attributes:
        column: The column.
        rows: Number of marked rows that would not be marked if this column alone had the value of another row.
        fraction: Their fraction of the marked rows that were looked at.
    """

    column: str
    rows: int
    fraction: Estimate


@dataclass(frozen=True)
class Novelty:
    """How often held-out rows are marked as unlike the training rows.

    Attributes:
        score: The name of the novelty score.
        false_alarms: The fraction of ordinary rows that may be marked.
        chosen_on: Number of held-out rows that the threshold of this evaluation was chosen on.
        rows: Number of the other held-out rows, which were marked by it.
        marked: Number of them that were.
        rate: Their fraction.
        text: The same in a sentence.
        examined: Number of marked rows that `columns` were found on.
        columns: The columns that make them strange, from the most frequent to the least.
    """

    score: str
    false_alarms: float
    chosen_on: int
    rows: int
    marked: int
    rate: Estimate
    text: str
    examined: int = 0
    columns: tuple[StrangeColumn, ...] = ()


@dataclass(frozen=True)
class PredictionSets:
    """Prediction sets of one coverage: chosen on one half of the rows, and measured on the other.

    Attributes:
        promised: The coverage that is guaranteed for new rows.
        chosen_on: Number of rows that the sets were chosen on.
        rows: Number of rows that they were measured on.
        coverage: Fraction of rows whose set contains the true class, with its exact interval.
        size: Mean number of classes in a set.
        single: Fraction of sets of one class.
        empty: Fraction of sets of none.
    """

    promised: float
    chosen_on: int
    rows: int
    coverage: Estimate
    size: Estimate
    single: float
    empty: float


@dataclass(frozen=True)
class Refit:
    """A model that was trained again on all rows, after the evaluation of one trained without the held-out rows.

    Attributes:
        rows: Number of rows that the stored model was trained on.
        evaluated_rows: Number of rows that the evaluated model was trained on.
        text: What follows for the scores, in a sentence.
    """

    rows: int
    evaluated_rows: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The scores of one method that can be computed from sums over rows.

    Attributes:
        name: The method.
        judgement: "honest" (no sign of miscalibration), "over", "under" or "mixed".
        verdict: The accuracy at a typical confidence, in a sentence.
        mean_confidence: The mean over all rows.
        accuracy: Fraction of rows that are classified right.
        ece: Expected calibration error of the confidence.
        noise_floor: The ECE expected by chance.
        log_loss: Mean log loss.
        brier_score: Mean Brier score.
        tests: p-values of calibration, by test.
        by_range: Groups of rows by confidence.
        roc_auc: Area under the ROC curve, for several classes the mean of one class against the others.
        usefulness: Whether it is better than the base rates.
    """

    name: str
    judgement: Judgement
    verdict: Verdict
    mean_confidence: float
    accuracy: Estimate
    ece: Estimate
    noise_floor: NoiseFloor
    log_loss: Estimate
    brier_score: Estimate
    tests: Mapping[str, float]
    by_range: tuple[RangeGroup, ...]
    roc_auc: Estimate | None = None
    usefulness: Usefulness | None = None


@dataclass(frozen=True, kw_only=True)
class MethodReport(Scores):
    """The report on one method.

    Attributes:
        log_loss_behind_best: Log loss minus the lowest one's; None for the lowest.
        below_chance: Fraction of rows with a confidence below `1 / n_classes`.
        bins: The bins of the reliability diagram that have rows.
        by_class: Groups of rows by predicted class.
        reject: Coverage and risk at thresholds on the confidence.
        worst: The wrong predictions with the highest confidence, if rows have names.
        by_true_class: Recall, precision and area under the ROC curve of each class; of many, the lowest recalls.
        confusion: Rows by true and predicted class.
        by_group: Calibration in each group of rows.
        sets: Prediction sets of some coverages.
    """

    log_loss_behind_best: Estimate | None
    below_chance: float
    bins: tuple[Bin, ...]
    by_class: ClassGroups
    reject: RejectCurve
    worst: tuple[Mistake, ...] | None
    by_true_class: tuple[ClassScores, ...] = ()
    confusion: Confusion | None = None
    by_group: tuple[GroupedBy, ...] = ()
    sets: tuple[PredictionSets, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ScoreReport:
    """A report from sums over rows, for more rows than are kept in memory."""

    rows: int
    level: float
    n_bins: int
    methods: tuple[Scores, ...]
    brier_convention: str = BRIER_CONVENTION

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python, ready for JSON."""
        return dict(to_plain(self))


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report on methods evaluated on the same rows; `summarise` returns it.

    Attributes:
        title: The heading of the page.
        subtitle: A description of the data.
        format: The version of this layout.
        selfcal: The version of selfcal that made it.
        rows: Number of rows.
        classes: The names of the classes.
        class_rows: Number of rows of each true class.
        level: The level of all intervals.
        n_bins: Number of bins of the calibration error.
        n_resamples: Number of label sets drawn for the noise floor and the test.
        seed: Seed of the draws.
        settings: Further facts about data and training.
        notes: Remarks on the data and the training, each a sentence or two.
        provenance: Where the report comes from.
        baseline: What always predicting the base rates would score.
        of_classes: False if the predictions are a confidence alone; the classes are then "wrong" and "right".
        brier_convention: The scale of the Brier scores.
        importance: Which columns matter.
        methods: One entry for each method.
        labels: An audit of the training labels.
        refit: What the model was refitted on after the evaluation; None if it is the evaluated one.
        novelty: How often rows are marked as unlike the training rows, and which columns make them so.
    """

    title: str = ""
    subtitle: str = ""
    format: int
    selfcal: str
    rows: int
    classes: tuple[str, ...]
    class_rows: tuple[int, ...]
    level: float
    n_bins: int
    n_resamples: int
    seed: int
    settings: Mapping[str, str]
    methods: tuple[MethodReport, ...]
    notes: tuple[str, ...] = ()
    provenance: Provenance | None = None
    baseline: Baseline | None = None
    of_classes: bool = True
    brier_convention: str = BRIER_CONVENTION
    importance: Importance | None = None
    labels: SuspectLabels | None = None
    refit: Refit | None = None
    novelty: Novelty | None = None

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python, ready for JSON."""
        return dict(to_plain(self))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The report that `to_dict` wrote."""
        return from_plain(cls, values)

    def _repr_html_(self) -> str:
        from selfcal.reporting.notebook import notebook_html

        return notebook_html(self)
