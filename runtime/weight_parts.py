"""Reads one part of a WeightMap from a model's files, in the order that the decoder wants."""

import torch
from torch import Tensor

from runtime.weight_map import MatrixPart, Vector, VectorPart
from runtime.weights import WeightReader


def read_vector(reader: WeightReader, parts: Vector) -> Tensor:
    """A new tensor, float32."""
    return torch.cat([read_part(reader, part).float() + part.offset for part in parts])


def read_part(reader: WeightReader, part: MatrixPart | VectorPart) -> Tensor:
    """The part in the order that the decoder wants; may share memory with the file."""
    if isinstance(part, MatrixPart) and part.expert is not None:
        tensor = reader.read_rows(part.tensor, part.expert, part.expert + 1)[0]
        tensor = tensor if part.rows is None else tensor[slice(*part.rows)]
    elif part.rows is not None:
        tensor = reader.read_rows(part.tensor, *part.rows)
    else:
        tensor = reader.read(part.tensor)
    if part.interleaved_head_dim is not None:
        tensor = undo_rotary_interleave(tensor, head_dim=part.interleaved_head_dim)
    return tensor


def undo_rotary_interleave(weight: Tensor, *, head_dim: int) -> Tensor:
    """Some GGUF files hold the rows of q and k with the two halves of a head interleaved.

    | row of a head        | in the file | wanted        |
    | -------------------- | ----------- | ------------- |
    | pair i, first part   | 2 i         | i             |
    | pair i, second part  | 2 i + 1     | i + d / 2     |

    weight: [rows] or [rows, columns].
    """
    pairs = weight.view(-1, head_dim // 2, 2, *weight.shape[1:])
    return pairs.transpose(1, 2).reshape(weight.shape)
