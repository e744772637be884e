"""A small BERT of `transformers`, made from a configuration: `train`, `BilevelStep` and `CalibratedModel`."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, random_split

from selfcal import Batch, BilevelStep, CalibratedModel, recipes, train
from selfcal.hypergradients import OneStep
from selfcal.optimizers import AdamW

transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::selfcal.errors.CalibrationWarning"),
]


def bert():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=2,
        max_position_embeddings=16,
    )
    return transformers.BertForSequenceClassification(config)


def texts(n=240):
    """Whether token 3 occurs; the texts have different lengths."""
    stream = torch.Generator().manual_seed(0)
    ids = torch.randint(4, 20, (n, 8), generator=stream)
    mask = (torch.arange(8) < torch.randint(4, 9, (n, 1), generator=stream)).long()
    has = torch.rand(n, generator=stream) < 0.5
    ids[has, 1] = 3
    return [
        {"input_ids": i, "attention_mask": m, "labels": int(y)}
        for i, m, y in zip(ids, mask, has, strict=True)
    ]


def loaders():
    parts = random_split(texts(), [140, 50, 50], generator=torch.Generator().manual_seed(0))
    return [DataLoader(part, batch_size=35) for part in parts]


@pytest.mark.parametrize("tangent", ["difference", "forward"])
def test_it_trains_and_is_calibrated(tangent):
    train_loader, outer, selection = loaders()
    recipe = recipes.bo4sc(inner_steps=4, hypergradient=OneStep(tangent))
    result = train(
        bert(),
        train_loader,
        outer,
        selection,
        recipe=recipe,
        optimizer=AdamW(lr=0.01),
        max_epochs=20,
        clip_norm=1.0,
    )
    losses = result.history.selection_loss
    assert losses.min() < 0.5 * losses[0]
    assert result.outer_params["weight"].std() > 0
    model = CalibratedModel(result.module).fit(outer)
    probs = model.predict_proba(selection)
    labels = torch.cat([batch["labels"] for batch in selection]).numpy()
    assert (probs.argmax(axis=1) == labels).mean() > 0.8
    (rows,) = (next(iter(DataLoader(selection.dataset, batch_size=50))),)
    rows.pop("labels")
    np.testing.assert_allclose(model.predict_proba(rows), probs, rtol=1e-5, atol=1e-7)


def test_a_loop_of_ones_own():
    module, (train_loader, outer, _) = bert(), loaders()
    step = BilevelStep(module, AdamW(lr=0.01), recipes.bo4sc(inner_steps=4), n_train=140)
    module.train()
    held_out, losses = next(iter(outer)), []
    for _ in range(15):
        for number, rows in enumerate(train_loader):
            index = torch.arange(35 * number, 35 * number + len(rows["labels"]))
            x = {name: value for name, value in rows.items() if name != "labels"}
            batch = Batch(x, rows["labels"], index)
            losses.append(step(batch, held_out if step.outer_due else None).inner_loss)
    assert np.mean(losses[-8:]) < 0.5 * np.mean(losses[:4])
    assert step.outer_params["weight"].std() > 0
