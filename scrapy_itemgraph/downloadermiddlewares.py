"""The first downloader middleware: sees every fetch begin and end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from scrapy import Request

from scrapy_itemgraph.exceptions import ItemGraphError
from scrapy_itemgraph.throttle import feedback
from scrapy_itemgraph.throttle.local_slots import NO_DOWNLOAD
from scrapy_itemgraph.worker.executions.execution import LegState, leg_of
from scrapy_itemgraph.worker.worker import WorkerComponent

if TYPE_CHECKING:
    from scrapy.http import Response

    from scrapy_itemgraph.worker.executions.execution import Leg


class ItemGraphDownloaderMiddleware(WorkerComponent):
    """Watches the asyncio task of each fetch, and answers for tasks that download nothing."""

    async def process_request(self, request: Request) -> Response | None:
        """Watch the fetch, and check where it leads; stand in for one without a download."""
        egress = self._worker.egress
        leg = leg_of(request)
        if leg is None:
            if egress.guards(request):
                await egress.check(request)
            return None
        leg.fetch = asyncio.current_task()
        assert leg.fetch is not None
        leg.fetch.add_done_callback(lambda task: self._fetched(leg, task))
        if NO_DOWNLOAD not in request.meta:
            if egress.guards(request):
                await egress.check(request)
            return None
        if leg.lane:
            await self._worker.gate.pass_without_download(leg)
        return self._worker.response_to(request)

    async def process_response(self, request: Request, response: Response) -> Response:
        """Check where it is from; let requests that start just now leave before a callback runs."""
        if not self._worker.is_open:
            return response
        if self._worker.egress.guards(request):
            self._worker.egress.check_answer(request, response)
        if feedback.is_robots(request):
            self._worker.feedback.robots(request, response)
        await self._worker.gate.sends.quiet()
        return response

    def _fetched(self, leg: Leg, task: asyncio.Task[Any]) -> None:
        if leg.fetch is not task:  # what it led to is on its way already
            return
        leg.fetched()
        self._worker.jars.note(leg.request)
        if task.cancelled():
            leg.execution.release()
            leg.close()
        elif (
            task.exception() is None
            and isinstance(task.result(), Request)
            and leg.state is LegState.RUNNING
        ):
            self._refused(leg, task.result())

    def _refused(self, leg: Leg, request: Request) -> None:
        """Close a leg whose redirect or retry was not let into the scheduler."""
        if leg.is_own and leg.execution.claim is not None:
            why = ItemGraphError(f"the request that {leg.request.url} led to was refused")
            leg.execution.refuse(
                self._worker.active.error_of(leg.execution, why, kind="refused", url=request.url)
            )
        leg.close()
