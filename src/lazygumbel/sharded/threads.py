"""`engine="threads"`: all shards in this process, a thread each. The reference, and the engine for one machine."""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from lazygumbel.sharded.manifest import Manifest, folder_of
from lazygumbel.sharded.requests import Known, Lost, Outcome, Replies, Requests, Versions
from lazygumbel.sharded.worker import ShardWorker

__all__ = ["ThreadsEngine"]


class ThreadsEngine:
    """Shards of this process. One that misses the deadline is not stopped: its answer is dropped when it comes."""

    def __init__(self, path: Path, manifest: Manifest, *, deadline: float, writes: bool = False) -> None:
        self._deadline = deadline
        shards = manifest.asked(writes=writes)
        self._known = {shard.shard: Known(shard.shard) for shard in shards}
        self._workers = {
            shard.shard: ShardWorker(
                str(path / folder_of(shard.shard)), _here, writes=writes, filled=shard.version is not None
            )
            for shard in shards
        }
        for worker in self._workers.values():
            worker.warm_up()  # or the first question might pass its deadline while kernels compile
        # Not the pool of the kernels, whose threads these would wait for.
        self._pool = ThreadPoolExecutor(2 * len(self._workers), thread_name_prefix="lazygumbel-shard")

    def ask(self, requests: Requests, versions: Versions, deadline: float | None = None) -> Replies:
        """Every shard on a thread of its own."""
        seconds = self._deadline if deadline is None else deadline
        futures = {
            shard: self._pool.submit(self._workers[shard].answer, asked, versions[shard])
            for shard, asked in requests.items()
        }
        wait(futures.values(), timeout=seconds)
        replies = Replies()
        for shard, future in futures.items():
            self._settle(shard, future, replies, seconds)
        return replies

    def health(self, versions: Versions) -> list[Known]:
        """What is known of each shard."""
        self.ask(dict.fromkeys(self._known, ()), versions)
        return list(self._known.values())

    def close(self) -> None:
        """End the threads, when they are done."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers.values():
            worker.close()

    def _settle(self, shard: int, future: "Future[Outcome]", replies: Replies, seconds: float) -> None:
        known = self._known[shard]
        if not future.done():
            future.cancel()
            known.error = f"no answer within {seconds:g} s"
        else:
            outcome = future.result()
            known.heard(outcome)
            if outcome.status == "invalid":
                raise ValueError(outcome.error)
            if outcome.status == "answered":
                replies.answers[shard] = outcome.results
                return
            if outcome.status == "refused":
                replies.refused.add(shard)
        replies.lost[shard] = Lost(shard, str(known.error))


def _here() -> str:
    return "this process"
