from typing import Any

ir: Any
