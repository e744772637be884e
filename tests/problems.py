"""Small bilevel problems with known answers."""

from dataclasses import dataclass

import torch

from selfcal._support.random_streams import RandomStream
from selfcal.training.interfaces import InnerStep, Problem, Trajectory
from selfcal.training.types import Batch, Output


@dataclass(frozen=True)
class WeightedRidge(Problem):
    """Strongly convex: least squares with a weight per row; the outer loss depends on the weights directly too.

    inner = Σ w_i (x_i θ - y_i)² / 2n + μ |θ|² / 2;   outer = mean (x' θ - y')² / 2 + direct · w
    """

    x: torch.Tensor
    y: torch.Tensor
    x_outer: torch.Tensor
    y_outer: torch.Tensor
    direct: torch.Tensor
    mu: float = 0.3

    def output(self, theta, batch):
        """The prediction in the first column; the parameters ride along for the ridge penalty."""
        rides = theta.expand(len(batch.y), -1)
        return Output(torch.cat([(batch.x @ theta)[:, None], rides], dim=1))

    def training_loss(self, output, outer, batch):
        residual = output.logits[:, 0] - batch.y
        ridge = (output.logits[:, 1:] ** 2).sum(dim=1)
        return (outer["weight"][batch.index] * residual**2 + self.mu * ridge).mean() / 2

    def outer(self, theta, outer, batch):
        return ((batch.x @ theta - batch.y) ** 2).mean() / 2 + self.direct @ outer["weight"]

    def solve(self, weight):
        """The inner minimiser in closed form."""
        n, d = self.x.shape
        hessian = (self.x.T * weight) @ self.x / n + self.mu * torch.eye(d, dtype=self.x.dtype)
        return torch.linalg.solve(hessian, self.x.T @ (weight * self.y) / n)

    @property
    def train_batch(self):
        return Batch(self.x, self.y, torch.arange(len(self.y)))

    @property
    def outer_batch(self):
        return Batch(self.x_outer, self.y_outer)


class UpdatedRidge(WeightedRidge):
    """The same with a part of the update that is nonlinear in theta and in the weights."""

    def update_term(self, theta, outer):
        return outer["weight"].square().sum() * theta.tanh()


def weighted_ridge(seed=0, n=12, d=4):
    generator = torch.Generator().manual_seed(seed)
    options = {"dtype": torch.float64, "generator": generator}
    return WeightedRidge(
        x=torch.randn(n, d, **options),
        y=torch.randn(n, **options),
        x_outer=torch.randn(9, d, **options),
        y_outer=torch.randn(9, **options),
        direct=0.1 * torch.randn(n, **options),
    )


def run_inner(problem, rule, theta, outer, batches, *, keep_graphs=False):
    """Take an inner step per batch and record all of them."""
    state, steps = rule.init(theta), []
    for count, batch in enumerate(batches, start=1):
        rewind = RandomStream(torch.device("cpu")).mark()
        graph = problem.gradient_graph(theta, outer, batch)
        grad = graph.evaluation.grad
        after, state_after = rule.update(theta, grad, state, count)
        term = problem.update_term(theta, outer)
        if term is not None:
            after = after - rule.step_size(count) * term
        kept = graph if keep_graphs else None
        steps.append(InnerStep(theta, state_after, count, batch, rewind, graph.evaluation, kept))
        theta, state = after, state_after
    return Trajectory(rule, steps, theta)
