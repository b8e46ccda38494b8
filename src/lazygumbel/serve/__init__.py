"""A model behind HTTP, with a page to explore it; needs the extra `serve`.

`lazygumbel serve model/` on the command line, or `create_app(model)` for a server of your own. Each route is one verb
of `Distribution`, in the library's words; see docs/service.md.
"""

from lazygumbel._support.extras import require

for _module in ("fastapi", "uvicorn", "prometheus_client"):
    require(_module, extra="serve")

from lazygumbel.serve.app import create_app  # noqa: E402  # after the lines that name the cure
from lazygumbel.serve.limits import Limits  # noqa: E402
from lazygumbel.serve.served import Folder, Model  # noqa: E402

__all__ = ["Folder", "Limits", "Model", "create_app"]
