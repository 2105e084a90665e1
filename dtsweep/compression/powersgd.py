"""`powersgd`: each matrix as the product of two thin ones, with error feedback.

Source: Vogels et al. 2019.

torch's own hook can't be taken: inside a callback it waits for another collective, and where DDP
has more than one bucket, gloo, whose threads run the callbacks, hangs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dtsweep.compression.compression import Compression, Layout
from dtsweep.sweep.point import Point


class PowerSgd(Compression):
    """Tensors that are not matrices, or too small to gain, are sent as they are.

    Payloads are added up, first P's, then Q's.
    """

    def __init__(self, layout: Layout, point: Point) -> None:
        """Divide the parameters, and draw the first Q's, the same on all workers."""
        super().__init__(layout, point)
        assert point.compression_rank is not None
        self.payload_dtype = layout.dtype
        self._groups, self._places = _divided(layout, point.compression_rank)
        random = torch.Generator().manual_seed(layout.seed)
        for group in self._groups:
            group.first_q = torch.randn(group.q.shape, generator=random).to(group.q)
            group.q = group.first_q
        self._uncompressed = torch.empty(0)
        self._is_halfway = False

    def compress(self, values: Tensor) -> Tensor:
        """Make the first payload: uncompressed tensors, and P = M Q of matrices and residual."""
        self._is_halfway = False
        thin = []
        for group in self._groups:
            matrices = group.of(values)
            if group.residual is None:
                group.residual = matrices
            else:
                group.residual = group.residual.add_(matrices)
            thin.append(torch.bmm(group.residual, group.q))
        flat = [p.view(-1) for p in thin]
        return torch.cat([values[self._places], *flat]) / self._layout.ranks

    def proceed(self, payload: Tensor) -> Tensor | None:
        """Make the second payload from the P's, made orthonormal: Q = transposed M P."""
        if self._is_halfway:
            return None
        self._uncompressed, *parts = payload.split(
            [len(self._places), *(group.p.numel() for group in self._groups)]
        )
        if not self._groups:
            return None
        self._is_halfway = True
        thin = []
        for group, part in zip(self._groups, parts, strict=True):
            assert group.residual is not None
            group.p = _orthonormal(part.view(group.p.shape))
            thin.append(torch.bmm(group.residual.transpose(1, 2), group.p).view(-1))
        return torch.cat(thin) / self._layout.ranks

    def decompress(self, payload: Tensor, values: Tensor) -> None:
        """Write P times transposed Q, with the Q's of the payload, and keep the residual."""
        values[self._places] = self._uncompressed
        parts: tuple[Tensor, ...] = ()
        if self._groups:
            parts = payload.split([group.q.numel() for group in self._groups])
        for group, part in zip(self._groups, parts, strict=True):
            assert group.residual is not None
            q = part.view(group.q.shape)
            product = torch.bmm(group.p, q.transpose(1, 2))
            torch._foreach_copy_(group.views(values), list(product.unbind()))
            group.residual.sub_(product).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
            # Values that are not finite are sent once, and leave nothing for the next step.
            group.q = torch.where(torch.isfinite(q), q, group.first_q)

    def compress_alone(self, values: Tensor) -> Tensor:
        """Make a payload of the uncompressed tensors, the P's and the Q's."""
        q = self.proceed(self.compress(values))
        self.decompress(self._uncompressed if q is None else q, torch.empty_like(values))
        thin = [factor.reshape(-1) for group in self._groups for factor in (group.p, group.q)]
        return torch.cat([self._uncompressed, *thin])

    def add_to(self, values: Tensor, payload: Tensor, scale: float = 1.0) -> None:
        """Add what `compress_alone` has made."""
        sizes = [size for group in self._groups for size in (group.p.numel(), group.q.numel())]
        uncompressed, *thin = payload.split([len(self._places), *sizes])
        values.index_add_(0, self._places, uncompressed, alpha=scale)
        for group, p, q in zip(self._groups, thin[::2], thin[1::2], strict=True):
            columns = q.view(group.q.shape).transpose(1, 2)
            product = torch.bmm(p.view(group.p.shape), columns)
            torch._foreach_add_(group.views(values), list(product.unbind()), alpha=scale)


class _Matrices:
    """Matrices of one shape: offsets in the flat tensor, factors and residual."""

    def __init__(
        self, begins: list[int], shape: tuple[int, int], rank: int, layout: Layout
    ) -> None:
        self._begins = begins
        self._shape = shape
        new = torch.empty(0, dtype=layout.dtype, device=layout.device).new_zeros
        self.p, self.q = (new(len(begins), size, rank) for size in shape)
        self.first_q = self.q
        self.residual: Tensor | None = None

    def views(self, flat: Tensor) -> list[Tensor]:
        rows, columns = self._shape
        return [flat[begin : begin + rows * columns].view(rows, columns) for begin in self._begins]

    def of(self, flat: Tensor) -> Tensor:
        """A copy of them: (matrices, rows, columns)."""
        return torch.stack(self.views(flat))


def _divided(layout: Layout, rank: int) -> tuple[list[_Matrices], Tensor]:
    """Group by shape the matrices that two factors are smaller than; list the rest's positions."""
    begins = dict[tuple[int, int], list[int]]()
    rest = list[Tensor]()
    begin = 0
    for shape in layout.shapes:
        rows = 1
        if shape:
            rows = shape[0]
        columns = shape.numel() // max(rows, 1)
        if (rows + columns) * rank < rows * columns:
            begins.setdefault((rows, columns), []).append(begin)
        else:
            rest.append(torch.arange(begin, begin + shape.numel()))
        begin += shape.numel()
    places = torch.cat([torch.empty(0, dtype=torch.int64), *rest]).to(layout.device)
    return [_Matrices(starts, shape, rank, layout) for shape, starts in begins.items()], places


def _orthonormal(p: Tensor) -> Tensor:
    """Columns of each matrix, of length 1 and at right angles."""
    can_divide = p.dtype in (torch.float32, torch.float64)
    columns: Tensor = torch.linalg.qr(p if can_divide else p.float()).Q
    return columns.to(p.dtype)
