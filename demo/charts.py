"""The charts of the report as SVG text: no script, no font, no picture from elsewhere. Colours come from report.css."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape

from demo.story import Crossing, Mark, MarkKind, Sample, Story
from governor.domain.meter import period_end

RAILS = (
    (MarkKind.EDIT, "edits"),
    (MarkKind.MAIL, "mails"),
    (MarkKind.PAGE, "pages"),
    (MarkKind.STOP, "stops"),
    (MarkKind.START, "starts"),
)
_TICK_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a plot lies in its drawing, and what its axes mean. Pixels, moments, and the unit of y."""

    left: float
    top: float
    width: float
    height: float
    begin: datetime
    end: datetime
    y_max: float
    y_min: float = 0.0

    def x(self, moment: datetime) -> float:
        """Pixel of a moment."""
        return self.left + self.width * ((moment - self.begin) / (self.end - self.begin))

    def y(self, value: float) -> float:
        """Pixel of a value."""
        return self.top + self.height * (1 - (value - self.y_min) / (self.y_max - self.y_min))

    @property
    def right(self) -> float:
        """Pixel of the right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Pixel of the lower edge."""
        return self.top + self.height


@dataclass(frozen=True, slots=True)
class Size:
    """Width of a drawing in CSS pixels; `name` distinguishes the ids of its parts."""

    name: str
    width: float

    @property
    def is_narrow(self) -> bool:
        """True for a phone."""
        return self.width < 600


WIDE = Size("wide", 1080)
NARROW = Size("narrow", 340)


def spend_chart(story: Story, size: Size) -> str:
    """Spend of the month against the thresholds, with marks of edits, mails, pages, stops and starts below."""
    begin, end = _span(story)
    top_usd = max(max(sample.true_usd for sample in story.samples), story.figures.limit_usd) * 1.06
    height = 220.0 if size.is_narrow else 300.0
    left = 40.0 if size.is_narrow else 64.0
    frame = Frame(left, 14, size.width - left - (8 if size.is_narrow else 128), height, begin, end, top_usd)
    parts = [*_money_axis(frame, size), *_months(frame)]
    limit = story.figures.limit_usd
    parts.append(_line(frame.left, frame.y(limit), frame.right, frame.y(limit), "limit"))
    spans = _threshold_spans(story, begin, end)
    for kind in ("warn", "stop"):
        path = " ".join(
            f"{'M' if index == 0 else 'L'}{frame.x(since):.1f} {frame.y(limit * percents[kind] / 100):.1f} "
            f"H{frame.x(until):.1f}"
            for index, (since, until, percents) in enumerate(spans)
        )
        parts.append(f'<path class="{kind}" d="{path}"/>')
        first = spans[0][2][kind]
        x = frame.x(min(period_end(begin), end)) + (10 if size.is_narrow else 30)
        parts.append(_text(x, frame.y(limit * first / 100) + 13, f"{kind} {first:g} %", f"label {kind}-text"))
    parts.append(f'<path class="reported" d="{_stairs(frame, story.samples)}"/>')
    parts += [f'<path class="true" d="{path}"/>' for path in _months_of_line(frame, story.samples)]
    if not size.is_narrow:
        last = spans[-1][2]
        parts.append(_text(frame.right + 8, frame.y(limit) - 3, f"limit {_thousands(limit)}", "label"))
        for kind, word in (("stop", "stop"), ("warn", "warn")):
            amount = limit * last[kind] / 100
            parts.append(_text(frame.right + 8, frame.y(amount) + 4, f"{word} {last[kind]:g} %", f"label {kind}-text"))
    y = frame.bottom + 34
    for kind, word in RAILS:
        parts += _rail(frame, size, y, word, [mark for mark in story.marks if mark.kind is kind])
        y += 22
    title = "Spend of the month against the thresholds"
    description = (
        f"The true bill, and what AWS Budgets reported of it, in US dollars, from {begin:%d %B} to {end:%d %B %Y}, "
        f"against the limit of {_thousands(limit)}, the warning and the stop level. The timeline below says the same."
    )
    return _svg(size, y - 4, f"spend-{size.name}", title, description, parts)


def rate_chart(story: Story, size: Size) -> str:
    """What everything that runs costs per hour, at list price."""
    begin, end = _span(story)
    top = max(sample.run_rate_usd_per_hour for sample in story.samples) * 1.12
    left = 40.0 if size.is_narrow else 64.0
    frame = Frame(left, 12, size.width - left - (8 if size.is_narrow else 128), 120, begin, end, top)
    parts = [*_money_axis(frame, size, ticks=3), *_months(frame)]
    points = [f"M{frame.x(story.samples[0].at):.1f} {frame.y(story.samples[0].run_rate_usd_per_hour):.1f}"]
    for sample in story.samples[1:]:
        points.append(f"H{frame.x(sample.at):.1f} V{frame.y(sample.run_rate_usd_per_hour):.1f}")
    outline = " ".join(points)
    parts.append(
        f'<path class="area" d="{outline} V{frame.bottom:.1f} H{frame.x(story.samples[0].at):.1f} Z"/>'
        f'<path class="rate" d="{outline}"/>'
    )
    title = "Run rate"
    description = (
        f"US dollars per hour of everything that runs, at list price: "
        f"{story.figures.run_rate_before_usd_per_hour:,.2f} before the stop of {story.month}, "
        f"{story.figures.run_rate_after_usd_per_hour:,.2f} after it."
    )
    return _svg(size, frame.bottom + 30, f"rate-{size.name}", title, description, parts)


def crossing_chart(story: Story, size: Size) -> str:
    """The hours around the stop: the true bill crosses, AWS Budgets learns of it later."""
    crossing = story.crossing
    begin, end = crossing.crossed_at - timedelta(hours=6), crossing.seen_stopped_at + timedelta(hours=4)
    inside = _between(story.samples, begin, end)
    shown = [crossing.stop_usd, crossing.spent_when_stopped_usd, *(sample.true_usd for sample in inside)]
    shown += [sample.reported_usd for sample in inside if sample.reported_usd is not None]
    low, high = min(shown) - 200, max(shown) + 200
    left = 50.0 if size.is_narrow else 64.0
    frame = Frame(left, 22, size.width - left - (8 if size.is_narrow else 128), 190, begin, end, high, low)
    parts = [*_money_axis(frame, size, ticks=4), *_hours(frame, size)]
    stop_y = frame.y(crossing.stop_usd)
    parts.append(f'<path class="stop" d="M{frame.left} {stop_y:.1f} H{frame.right}"/>')
    if not size.is_narrow:
        parts.append(
            _text(
                frame.right + 8,
                stop_y + 4,
                f"stop {crossing.stop_usd / story.figures.limit_usd * 100:g} %",
                "label stop-text",
            )
        )
    x_from, x_to = frame.x(crossing.crossed_at), frame.x(crossing.reported_at)
    parts.append(
        f'<rect class="lag" x="{x_from:.1f}" y="{frame.top}" width="{max(x_to - x_from, 1):.1f}" '
        f'height="{frame.height}"/>'
    )
    parts.append(_text((x_from + x_to) / 2, frame.top - 8, f"not known yet: {_span_words(crossing)}", "label middle"))
    parts.append(f'<path class="reported" d="{_stairs(frame, inside)}"/>')
    line = " ".join(
        f"{'M' if i == 0 else 'L'}{frame.x(s.at):.1f} {frame.y(s.true_usd):.1f}" for i, s in enumerate(inside)
    )
    parts.append(f'<path class="true" d="{line}"/>')
    parts.append(
        _symbol(MarkKind.STOP, frame.x(crossing.stopping_at), frame.y(crossing.spent_when_stopped_usd), "stopped")
    )
    title = "The hours around the stop"
    description = (
        f"The true bill crosses {_thousands(crossing.stop_usd)} at {crossing.crossed_at:%d %B %H:%M}; AWS Budgets "
        f"reports it at {crossing.reported_at:%H:%M}; the machines are stopped at {crossing.stopping_at:%H:%M}."
    )
    return _svg(size, frame.bottom + 30, f"crossing-{size.name}", title, description, parts)


def _span_words(crossing: Crossing) -> str:
    minutes = round(crossing.lag_seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _span(story: Story) -> tuple[datetime, datetime]:
    begin, end = story.samples[0].at, story.samples[-1].at
    margin = (end - begin) * 0.012
    return begin - margin, end + margin


def _between(samples: Sequence[Sample], begin: datetime, end: datetime) -> list[Sample]:
    """Samples of a span, with its two edges put in by interpolation."""
    inside = [sample for sample in samples if begin < sample.at < end]
    before = [sample for sample in samples if sample.at <= begin]
    after = [sample for sample in samples if sample.at >= end]
    if before and inside:
        inside.insert(0, _at(begin, before[-1], inside[0]))
    if after and inside:
        inside.append(_at(end, inside[-1], after[0]))
    return inside


def _at(moment: datetime, earlier: Sample, later: Sample) -> Sample:
    share = (moment - earlier.at) / (later.at - earlier.at) if later.at > earlier.at else 0.0
    true_usd = earlier.true_usd + (later.true_usd - earlier.true_usd) * share
    return Sample(moment, true_usd, earlier.reported_usd, earlier.run_rate_usd_per_hour)


def _threshold_spans(story: Story, begin: datetime, end: datetime) -> list[tuple[datetime, datetime, dict[str, float]]]:
    spans = []
    for index, one in enumerate(story.thresholds):
        since = begin if index == 0 else one.since
        until = story.thresholds[index + 1].since if index + 1 < len(story.thresholds) else end
        spans.append((since, until, {"warn": one.warn_percent, "stop": one.stop_percent}))
    return spans


def _months_of_line(frame: Frame, samples: Sequence[Sample]) -> list[str]:
    """The true bill, one line a month: it begins at nothing on the first."""
    lines: list[str] = []
    points: list[str] = []
    last = -1.0
    for sample in samples:
        if sample.true_usd < last:
            lines.append(" ".join(points))
            points = []
        points.append(f"{'L' if points else 'M'}{frame.x(sample.at):.1f} {frame.y(sample.true_usd):.1f}")
        last = sample.true_usd
    return [*lines, " ".join(points)]


def _stairs(frame: Frame, samples: Iterable[Sample]) -> str:
    """What AWS Budgets reported: it stands still until the next refresh."""
    points: list[str] = []
    shown: float | None = None
    for sample in samples:
        if sample.reported_usd is None:
            continue
        if not points:
            points.append(f"M{frame.x(sample.at):.1f} {frame.y(sample.reported_usd):.1f}")
        elif sample.reported_usd != shown:
            points.append(f"H{frame.x(sample.at):.1f} V{frame.y(sample.reported_usd):.1f}")
        else:
            points.append(f"H{frame.x(sample.at):.1f}")
        shown = sample.reported_usd
    return " ".join(points)


def _money_axis(frame: Frame, size: Size, ticks: int = 6) -> list[str]:
    span = frame.y_max - frame.y_min
    wanted = span / (ticks - 1 if size.is_narrow and ticks > 3 else ticks)
    step = next((one for one in _TICK_STEPS if one >= wanted), _TICK_STEPS[-1])
    parts = []
    value = (int(frame.y_min // step) + (1 if frame.y_min % step else 0)) * step
    while value <= frame.y_max:
        y = frame.y(value)
        parts.append(_line(frame.left, y, frame.right, y, "grid"))
        shown = f"${value / 1000:g}k" if size.is_narrow and value >= 1000 else f"${value:,.0f}"
        parts.append(_text(frame.left - 6, y + 4, shown, "tick end"))
        value += step
    return parts


def _months(frame: Frame) -> list[str]:
    parts = [_line(frame.left, frame.bottom, frame.right, frame.bottom, "axis")]
    begin = frame.begin
    while begin < frame.end:
        until = min(period_end(begin), frame.end)
        if until < frame.end:
            parts.append(_line(frame.x(until), frame.top, frame.x(until), frame.bottom + 6, "turn"))
        middle = (frame.x(begin) + frame.x(until)) / 2
        if frame.x(until) - frame.x(begin) > 24:
            parts.append(
                _text(middle, frame.bottom + 18, f"{begin:%B}" if frame.width > 600 else f"{begin:%b}", "tick middle")
            )
        begin = until
    return parts


def _hours(frame: Frame, size: Size) -> list[str]:
    parts = [_line(frame.left, frame.bottom, frame.right, frame.bottom, "axis")]
    every = 6 if size.is_narrow else 2
    moment = frame.begin.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    while moment <= frame.end:
        if moment.hour % every == 0:
            x = frame.x(moment)
            parts.append(_line(x, frame.bottom, x, frame.bottom + 5, "axis"))
            shown = f"{moment:%d %b}" if moment.hour == 0 else f"{moment:%H:%M}"
            parts.append(_text(x, frame.bottom + 18, shown, "tick middle"))
        moment += timedelta(hours=1)
    return parts


def _rail(frame: Frame, size: Size, y: float, word: str, marks: Sequence[Mark]) -> list[str]:
    """One line of symbols below the chart; what lies too close is drawn as one, with its count."""
    parts = [_text(frame.left - 6, y + 4, word, "tick end"), _line(frame.left, y, frame.right, y, "grid")]
    clusters: list[list[Mark]] = []
    for mark in marks:
        near = 16 if size.is_narrow else 14
        if clusters and frame.x(mark.at) - frame.x(clusters[-1][0].at) < near:
            clusters[-1].append(mark)
        else:
            clusters.append([mark])
    for cluster in clusters:
        told = "\n".join(f"{mark.at:%d %b %H:%M} {mark.label}" for mark in cluster)
        x = frame.x(cluster[0].at)
        parts.append(_symbol(cluster[0].kind, x, y, told))
        if len(cluster) > 1:
            side = -8 if x > frame.right - 20 else 8
            parts.append(_text(x + side, y + 4, str(len(cluster)), "tick end" if side < 0 else "tick"))
    return parts


def _symbol(kind: MarkKind, x: float, y: float, told: str) -> str:
    shapes = {
        MarkKind.MAIL: f'<circle class="mark mail" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>',
        MarkKind.PAGE: f'<path class="mark page" d="M{x:.1f} {y - 5.5:.1f} l6 10.5 h-12 z"/>',
        MarkKind.STOP: f'<rect class="mark halt" x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10"/>',
        MarkKind.START: f'<path class="mark start" d="M{x - 5:.1f} {y - 6:.1f} l11 6 l-11 6 z"/>',
        MarkKind.EDIT: f'<path class="mark edit" d="M{x:.1f} {y - 6:.1f} l6 6 l-6 6 l-6 -6 z"/>',
    }
    return f"<g><title>{escape(told)}</title>{shapes[kind]}</g>"


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _thousands(amount_usd: float) -> str:
    return f"${amount_usd:,.0f}"


def _svg(size: Size, height: float, name: str, title: str, description: str, parts: Iterable[str]) -> str:
    return (
        f'<svg class="{size.name}" viewBox="0 0 {size.width:g} {height:g}" role="img" '
        f'aria-labelledby="{name}-title {name}-text"><title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-text">{escape(description)}</desc>{"".join(parts)}</svg>'
    )
