"""A client of `lazygumbel serve`; the standard library is all that it imports.

    with Client("http://127.0.0.1:8000") as client:
        drawn = client.sample("river", temperature=0.05, size=5, seed=0)

Thetas are a name or a sum of names, the id of a row, numbers, or anything that holds float32 in memory: an
`array.array("f")`, or a NumPy array of shape (d,) or (B, d). Answers have the keys and shapes of the service.
"""

from lazygumbel.client.connection import Client, ServiceError
from lazygumbel.client.thetas import Theta
from lazygumbel.forms import Audit, Change, Draws, Estimate, Info, OrderedDraws, Rows, TopK

__all__ = [
    "Audit",
    "Change",
    "Client",
    "Draws",
    "Estimate",
    "Info",
    "OrderedDraws",
    "Rows",
    "ServiceError",
    "Theta",
    "TopK",
]
