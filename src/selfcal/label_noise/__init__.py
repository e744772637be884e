"""Wrong labels: finding them, estimating how labels go wrong, and correcting predictions for it."""

from selfcal.label_noise.audit import LabelAudit, audit_labels

__all__ = ["LabelAudit", "audit_labels"]
