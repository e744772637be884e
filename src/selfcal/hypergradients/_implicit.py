"""Hypergradients by the implicit function theorem."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from torch import Tensor

from selfcal.hypergradients._pieces import outer_gradient
from selfcal.training.interfaces import Hypergradient, Problem, Trajectory
from selfcal.training.types import Batch, OuterParams

Product = Callable[[Tensor], Tensor]
"""Multiplies a vector by a symmetric matrix that is never formed."""


class AbstractImplicit(Hypergradient):
    """Assume that the parameters minimise the inner loss, and differentiate the minimiser.

    ``dF/dλ = ∂F/∂λ - ∂²inner/∂λ∂θ (∂²inner/∂θ² + damping)⁻¹ ∂F/∂θ``. It uses no step, only the parameters after the
    last one, and is as accurate as the inner problem is solved. Subclasses differ in the solver of the linear system.

    Reference:
        Pedregosa, Hyperparameter optimization with approximate gradient, 2016.
    """

    horizon = 1
    records = "start"
    differentiates_update = False
    damping: float

    @abstractmethod
    def solve(self, product: Product, b: Tensor) -> Tensor:
        """The solution x of ``A x = b``, with `product` multiplying by A, damping included."""

    def __call__(
        self, problem: Problem, trajectory: Trajectory, outer: OuterParams, batch: Batch
    ) -> tuple[Tensor, OuterParams]:
        """The outer loss and its gradient through the minimiser."""
        value, adjoint, direct = outer_gradient(problem, trajectory.theta, outer, batch)
        last = trajectory.steps[-1]
        last.rewind()
        graph = problem.gradient_graph(trajectory.theta, outer, last.batch)

        def product(vector: Tensor) -> Tensor:
            return graph.pull_back(vector, keep=True)[0].add_(vector, alpha=self.damping)

        _, through = graph.pull_back(self.solve(product, adjoint))
        return value, {name: direct[name] - through[name] for name in direct}
