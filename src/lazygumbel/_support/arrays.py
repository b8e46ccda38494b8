"""Types of arrays, by the names that signatures give them."""

import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "Ints", "Mask", "Vectors"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
