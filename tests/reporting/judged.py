"""Predictions of known honesty, and names that mean harm."""

import numpy as np

from selfcal.reporting.predictions import Predictions

HOSTILE = {
    "closes the script": "</script><script>alert(1)</script>",
    "closes the title": "</title><img src=x onerror=alert(1)>",
    "template": "{{7*7}}{% raw %}",
    "attribute": "\" onmouseover='alert(1)' x=\"",
    "right to left": "\u202eشركة النور gnp.exe",
    "control": "a\x00b\x1b[31mc\r\nd\u2028e",
    "half a character": "\ud83d broken",
    "markdown": "[a](javascript:alert(1)) | `x` **b** <b>",
    "long": "x" * 10_000,
    "empty": "",
}


def predictions(sharpness=1.0, n=400, k=3, seed=0, alpha=1.0):
    """Honest at sharpness 1, over-confident above, under-confident below."""
    generator = np.random.default_rng(seed)
    probs = generator.dirichlet(np.full(k, alpha), n)
    y = (probs.cumsum(axis=1) > generator.random((n, 1))).argmax(axis=1)
    sharp = probs**sharpness
    return Predictions.from_probabilities(y, sharp / sharp.sum(axis=1, keepdims=True))
