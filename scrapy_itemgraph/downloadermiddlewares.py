"""The first downloader middleware: sees every fetch begin and end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_itemgraph.worker.downloads import delay_gate, revalidation, site_feedback
from scrapy_itemgraph.worker.downloads.request_slots import NO_DOWNLOAD
from scrapy_itemgraph.worker.executions.execution import leg_of
from scrapy_itemgraph.worker.worker import WorkerComponent

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response


class ItemGraphDownloaderMiddleware(WorkerComponent):
    """Checks where fetches lead, and answers for tasks that download nothing."""

    async def process_request(self, request: Request) -> Response | None:
        """Check where a fetch leads; stand in for one without a download."""
        egress = self._worker.base.egress
        leg = leg_of(request)
        if leg is None or NO_DOWNLOAD not in request.meta:
            if egress.guards(request):
                await egress.check(request)
            if leg is not None and leg.has_validators and not self._has_cache(request):
                revalidation.ask(request, leg, most=self._worker.settings.results.max_unchanged)
            return None
        if leg.lane:
            with delay_gate.unseen():
                await self._worker.parts.gate.pass_without_download(leg)
        return self._worker.response_to(request)

    def _has_cache(self, request: Request) -> bool:
        """Tell whether Scrapy's HTTP cache asks by its own validators."""
        is_on = self._worker.crawler.settings.getbool("HTTPCACHE_ENABLED")
        return is_on and not request.meta.get("dont_cache")

    async def process_response(self, request: Request, response: Response) -> Response:
        """Check where it is from; let requests that start just now leave before a callback runs."""
        if not self._worker.is_open:
            return response
        if self._worker.base.egress.guards(request):
            self._worker.base.egress.check_answer(request, response)
        if site_feedback.is_robots(request):
            response = await self._worker.parts.feedback.robots(request, response)
        await self._worker.parts.gate.sends.quiet()
        if (leg := leg_of(request)) is not None:
            revalidation.look(response, request, leg, self._worker.spider)
        return response
