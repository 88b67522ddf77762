"""What a backend finds that a step takes."""

import dataclasses


@dataclasses.dataclass
class StepCost:
    """What a step takes.

    Attributes:
        multiply_adds: of all of it.
        memory: bytes at the peak that are no weights, slots of the optimizer or inputs, by what they are for.
        layers: of each row of the table (multiply-adds, bytes that exist at the peak), both of the forward pass; None
            where the backend does not tell.
    """

    multiply_adds: int
    memory: dict
    layers: list | None = None
