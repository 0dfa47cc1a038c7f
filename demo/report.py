"""The report: one HTML file that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from html import escape
from pathlib import Path

from demo.charts import NARROW, WIDE, Size, crossing_chart, rate_chart, spend_chart
from demo.story import Change, Check, Command, Fate, FleetRow, GroupMoment, MailItem, Returned, Scene, Step, Story
from demo.terminal import after, duration, held_seconds, summary_rows, usd

STYLES = Path(__file__).with_name("report.css")

SECTIONS = (
    ("summary", "Summary"),
    ("spend", "Spend"),
    ("crossing", "From crossing to stopped"),
    ("scenes", "What happened"),
    ("fleet", "Fleet"),
    ("group", "Auto Scaling group"),
    ("override", "Override"),
    ("restore", "Restore"),
    ("timeline", "Timeline"),
    ("mails", "Mails"),
    ("settings", "Settings"),
    ("made", "How it was made"),
)

_SWATCHES = (
    ('<path class="true" d="M0 6 H26"/>', "true bill"),
    ('<path class="reported" d="M0 10 H9 V6 H18 V2 H26"/>', "what AWS Budgets reports"),
    ('<path class="limit" d="M0 6 H26" stroke="currentColor"/>', "limit"),
    ('<path class="stop" d="M0 6 H26"/>', "stop level"),
    ('<path class="warn" d="M0 6 H26"/>', "warning"),
)


def write_report(story: Story, path: Path) -> None:
    """Write the report of a story."""
    path.write_text(render(story), encoding="utf-8")


def render(story: Story) -> str:
    """The report as HTML text: styles inline, charts as SVG, no script."""
    sections = (
        _summary(story),
        _spend(story),
        _crossing(story),
        _scenes(story),
        _fleet(story),
        _group(story),
        _override(story),
        _restore(story),
        _timeline(story),
        _mails(story),
        _settings(story),
        _made(story),
    )
    body = "\n".join(
        f'<section id="{name}" aria-labelledby="{name}-heading">'
        f'<h2 id="{name}-heading">{escape(title)}</h2>{content}</section>'
        for (name, title), content in zip(SECTIONS, sections, strict=True)
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>GPU Governor demo: {escape(story.company)}, {escape(story.month)}</title>\n"
        '<link rel="icon" href="data:,">\n'
        f"<style>\n{STYLES.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n{_top(story)}\n"
        f"<main>\n{body}\n</main>\n{_foot(story)}\n</body>\n</html>\n"
    )


def _top(story: Story) -> str:
    stopped = _count(story, Fate.STOPPED)
    kept = len(story.fleet) - stopped
    crossing, figures = story.crossing, story.figures
    saved = figures.month_end_without_usd - figures.month_end_usd
    passed = len(story.checks) - len(story.failures)
    tiles = (
        (
            "Stopped",
            f"{usd(figures.stopped_usd_per_hour)}/h",
            f"{stopped} of {len(story.fleet)} machines; {kept} stay, each for a reason",
        ),
        (
            "Not spent",
            usd(saved, 0),
            f"{usd(figures.month_end_usd, 0)} in the month instead of {usd(figures.month_end_without_usd, 0)}",
        ),
        (
            "Report to stopped",
            duration(crossing.own_seconds),
            f"after {duration(crossing.lag_seconds)} in which AWS Budgets did not know",
        ),
        (
            "Command to running",
            after(story.restoring.slowest_seconds),
            f"{len(story.restoring.rows)} machines by one governor restore; {_boot_words(story)}",
        ),
        (
            "Checked",
            f"{passed} of {len(story.checks)}",
            "checks held" if not story.failures else "checks held; the others are marked below",
        ),
    )
    cells = "".join(
        f'<div><dt>{escape(what)}</dt><dd class="big">{escape(figure)}</dd><dd class="small">{escape(more)}</dd></div>'
        for what, figure, more in tiles
    )
    links = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title in SECTIONS)
    return (
        '<header class="top">'
        f"<h1>{escape(story.company)} passed its GPU limit. "
        f"{_number_word(stopped)} machines were stopped, nothing critical was.</h1>"
        '<p class="lead">The GPU Governor, deployed into a local AWS with the real <code>cdk deploy</code>, over three '
        "months of a small company’s bill. The company is made up; the functions, decisions and mails are real.</p>"
        f'<dl class="figures">{cells}</dl><nav aria-label="Sections">{links}</nav></header>'
    )


def _boot_words(story: Story) -> str:
    """How long machines take to boot here."""
    minutes = sorted({row.boot_minutes for row in story.restoring.rows})
    if not minutes:
        return "none came back"
    span = f"{minutes[0]:g}" if len(minutes) == 1 else f"{minutes[0]:g} to {minutes[-1]:g}"
    return f"booting takes {span} min here"


def _number_word(number: int) -> str:
    words = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
    return words[number] if number < len(words) else str(number)


def _count(story: Story, fate: Fate) -> int:
    return sum(row.fate is fate for row in story.fleet)


def _summary(story: Story) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(what)}</th><td class="number">{escape(figure)}</td><td>{escape(how)}</td></tr>'
        for what, figure, how in summary_rows(story)
    )
    reasons: dict[str, list[FleetRow]] = {}
    for row in story.fleet:
        if row.fate is Fate.SPARED:
            reasons.setdefault(row.why, []).append(row)
    kept = "".join(
        f"<tr><td>{', '.join(_whole(row.name) for row in rows)}</td>"
        f'<td class="number" data-label="USD per hour">{sum(row.usd_per_hour or 0.0 for row in rows):,.2f}</td>'
        f"<td>{escape(why)}</td></tr>"
        for why, rows in sorted(reasons.items(), key=lambda item: -sum(row.usd_per_hour or 0.0 for row in item[1]))
    )
    return _table(f"{story.month} and after, in figures", ("What", "Figure|number", "How"), rows) + _table(
        "What stayed at the stop level, and why", ("Machines", "USD per hour|number", "Reason"), kept
    )


def _whole(name: str) -> str:
    """A name that is not broken at its hyphens."""
    return f'<span class="nowrap">{escape(name)}</span>'


def _spend(story: Story) -> str:
    swatches = "".join(
        f'<li><svg viewBox="0 0 26 12" aria-hidden="true">{shape}</svg>{escape(word)}</li>' for shape, word in _SWATCHES
    )
    return (
        "<p>The bill follows from what runs and its list price. AWS Budgets sees it hours later, in steps, and the "
        "Governor acts on what AWS Budgets says.</p>"
        f'<ul class="legend">{swatches}</ul>'
        + _figure(
            story,
            spend_chart,
            "Spend of the month in USD. A number beside a symbol counts what lies too close to be drawn apart.",
        )
        + '<h3 style="margin-top:32px">Run rate</h3>'
        + _figure(story, rate_chart, "USD per hour of everything that runs, at list price.")
    )


def _figure(story: Story, draw: Callable[[Story, Size], str], caption: str) -> str:
    return f"<figure>{draw(story, WIDE)}{draw(story, NARROW)}<figcaption>{escape(caption)}</figcaption></figure>"


def _crossing(story: Story) -> str:
    crossing = story.crossing
    moments = (
        (crossing.crossed_at, "The true bill crosses the stop level", ""),
        (crossing.reported_at, "AWS Budgets reports it", ""),
        (crossing.noticed_at, "The notice reaches on-call", ""),
        (crossing.stopping_at, "The grace is over: EC2 is told to stop", "stop"),
        (crossing.seen_stopped_at, "All are seen stopped", "stop"),
    )
    items = []
    last = crossing.crossed_at
    for at, what, kind in moments:
        seconds = (at - last).total_seconds()
        after = "" if at == crossing.crossed_at else "at once" if seconds < 1 else f"+{duration(seconds)}"
        items.append(
            f'<li class="{kind}"><div class="at">{at:%d %b %H:%M:%S}</div><div>{escape(what)}</div>'
            f'<div class="after">{after}</div></li>'
        )
        last = at
    over = crossing.spent_when_stopped_usd - crossing.stop_usd
    return (
        f"<p>{crossing.total_seconds:,.0f} seconds of virtual time from crossing to stopped: "
        f"{crossing.lag_seconds:,.0f} in which AWS Budgets did not know, and {crossing.own_seconds:,.0f} of the "
        f"Governor’s own, 5 minutes of grace among them. Meanwhile {usd(over, 0)} were spent above the stop level.</p>"
        f'<ol class="track">{"".join(items)}</ol>'
        + _figure(
            story,
            crossing_chart,
            "USD of the month. The shaded time is the lag of AWS Budgets; the square is the stop.",
        )
    )


def _scenes(story: Story) -> str:
    return f'<ol class="scenes">{"".join(_scene(scene) for scene in story.scenes)}</ol>'


def _scene(scene: Scene) -> str:
    paragraphs = "".join(f"<p>{_with_code(text)}</p>" for text in scene.paragraphs)
    failed = [check for check in scene.checks if not check.passed]
    word = (
        f"{len(scene.checks)} checks, all held" if not failed else f"{len(failed)} of {len(scene.checks)} checks failed"
    )
    rows = "".join(_check_row(check) for check in scene.checks)
    return (
        f'<li><div class="when">{_day(scene.begins)} <br>{scene.begins:%H:%M} UTC</div>'
        f"<div><h3>{scene.number}. {escape(scene.title)}</h3>"
        f"{paragraphs}<details{' open' if failed else ''}><summary>{escape(word)}</summary>"
        + _table(f"Checks of scene {scene.number}", ("Check", "Expected", "Seen", "Held"), rows)
        + "</details></div></li>"
    )


def _check_row(check: Check) -> str:
    verdict = (
        '<td class="held" data-label="Held">yes</td>'
        if check.passed
        else '<td class="failed" data-label="Held">no</td>'
    )
    return (
        f'<tr><td>{escape(check.what)}</td><td data-label="Expected">{escape(check.expected)}</td>'
        f'<td data-label="Seen">{escape(check.seen)}</td>{verdict}</tr>'
    )


def _with_code(text: str) -> str:
    """Escaped text in which `backticks` become code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))


def _fleet(story: Story) -> str:
    rows = []
    for fate, title in ((Fate.STOPPED, "Stopped"), (Fate.SPARED, "Left running")):
        members = [row for row in story.fleet if row.fate is fate]
        rate = sum(row.usd_per_hour or 0.0 for row in members)
        rows.append(
            f'<tr class="group"><th scope="rowgroup" colspan="6">{title}: {len(members)} machines, '
            f"{usd(rate)} an hour</th></tr>"
        )
        rows += [_fleet_row(row) for row in members]
    heads = ("Machine", "Type", "Tagged", "USD per hour|number", "Before → after", "Reason")
    return _table(
        f"Every GPU machine at the stop level of {story.month}, with what the decision says of it", heads, "".join(rows)
    )


def _fleet_row(row: FleetRow) -> str:
    price = "unknown" if row.usd_per_hour is None else f"{row.usd_per_hour:,.2f}"
    kind = "" if row.kind == "plain" else f"<br>{escape(row.kind)}"
    after = "halted" if row.fate is Fate.STOPPED else "kept"
    project = f", {escape(row.project)}" if row.project else ""
    return (
        f'<tr><th scope="row">{escape(row.name)} <span class="id">{escape(row.instance_id)}</span></th>'
        f'<td data-label="Type">{escape(row.instance_type)}{kind}</td>'
        f'<td data-label="Tagged">{escape(row.tags)}{project}</td>'
        f'<td class="number" data-label="USD per hour">{price}</td>'
        f'<td class="nowrap" data-label="Before → after">{escape(row.state_before)} → '
        f'<span class="{after}">{escape(row.state_after)}</span></td>'
        f'<td data-label="Reason">{escape("; ".join((row.why, *row.notes)))}</td></tr>'
    )


def _group(story: Story) -> str:
    rows = "".join(_group_row(moment) for moment in story.group_moments)
    heads = (
        "When (UTC)",
        "Moment",
        "MinSize|number",
        "Desired|number",
        "MaxSize|number",
        "Members",
        "Launched|number",
    )
    return (
        f"<p>A stopped member of an Auto Scaling group is replaced, unless the group is told first. So each member of "
        f"<code>{escape(story.group)}</code> is put into standby, which needs a lower MinSize, and is stopped there. "
        "On the way back it runs, leaves standby, and the sizes are put back as they were. The last column counts all "
        "instances that the group has launched and that exist: a replacement would show there.</p>"
        + _table("The group as the Auto Scaling API describes it", heads, rows)
    )


def _group_row(moment: GroupMoment) -> str:
    members = ", ".join(f"{name}: {state}" for name, state in moment.members)
    return (
        f'<tr><td class="nowrap">{moment.at:%d %b %H:%M}</td><td data-label="Moment">{escape(moment.what)}</td>'
        f'<td class="number" data-label="MinSize">{moment.min_size}</td>'
        f'<td class="number" data-label="Desired">{moment.desired}</td>'
        f'<td class="number" data-label="MaxSize">{moment.max_size}</td>'
        f'<td data-label="Members">{escape(members)}</td>'
        f'<td class="number" data-label="Launched">{moment.launched}</td></tr>'
    )


def _override(story: Story) -> str:
    one = story.overriding
    held = held_seconds(story)
    rows = "".join(
        f'<tr><th scope="row">{escape(what)}</th><td class="number">{escape(figure)}</td><td>{escape(more)}</td></tr>'
        for what, figure, more in (
            ("Written", f"{one.command.at:%d %b %H:%M}", f"the parameter {one.parameter}, by {one.command.by}"),
            ("Spent by then", usd(one.spent_at_begin_usd), "as AWS Budgets reports it"),
            ("Kept running", f"{usd(one.usd_per_hour)}/h", ", ".join(one.machines)),
            ("Held", duration(held), f"{one.runs_held} runs of the guard in the minutes that were played"),
            ("Stop calls meanwhile", str(one.stop_calls), "StopInstances and the like, by any function"),
            (
                "Over",
                f"{one.ended_at:%d %b %H:%M}",
                f"AWS Budgets reports {usd(one.reported_at_end_usd)}, above {usd(one.up_to_usd)}; by time it would "
                f"have ended at {one.until:%d %b %H:%M}",
            ),
            (
                "Stopped",
                f"{one.stopped_at:%d %b %H:%M}",
                f"{duration((one.stopped_at - one.ended_at).total_seconds())} after its end: notice, grace, stop",
            ),
        )
    )
    return (
        "<p>At the stop level a person may go on and pay. An override has an end: a time, an amount of the month’s "
        "spend, or both, whichever comes first. The amount is compared with what AWS Budgets reports, so the true bill "
        "may be above it by then.</p>"
        + _terminal(one.command)
        + _table("The override in figures", ("What", "Figure|number", "More"), rows)
    )


def _terminal(command: Command) -> str:
    return (
        f'<pre class="terminal" tabindex="0"><b>$ {escape(command.typed)}</b>\n{escape(command.printed)}\n'
        f'<span class="code">exit code {command.exit_code}, {command.seconds:.1f} s of real time</span></pre>'
    )


def _restore(story: Story) -> str:
    one = story.restoring
    longest = max((row.running_after_seconds or 0.0 for row in one.rows), default=0.0)
    rows = "".join(_returned_row(row, longest) for row in one.rows)
    sizes = (
        f"The group {story.group} has its sizes back and its members in service {after(one.group_after_seconds)} "
        "after the command."
        if one.group_after_seconds is not None
        else f"The group {story.group} had not its sizes back in time."
    )
    return (
        f"<p>The mail “{escape(one.mail_subject)}” of {one.mail_at:%d %b %H:%M} holds the command "
        f"<code>{escape(one.in_mail)}</code>. It is run {_days(one.command.at - one.mail_at)} later.</p>"
        + _terminal(one.command)
        + f"<p>{escape(sizes)} All is virtual time, seen to the minute. The minutes to boot are set by the demo for "
        "each type, since the emulator has none. What is left is the Governor’s own part, without the seconds in which "
        "its functions work: the virtual clock stands still for them. On AWS a start may also find no capacity; then "
        "it is tried again.</p>"
        + _table(
            "From the command to running",
            (
                "Machine",
                "Type",
                "USD per hour|number",
                "Start called|number",
                "Boot, as set|number",
                "Running|number",
                "Confirmed|number",
            ),
            rows,
        )
    )


def _days(span: timedelta) -> str:
    days = round(span / timedelta(days=1))
    return f"{days} day{'' if days == 1 else 's'}"


def _returned_row(row: Returned, longest: float) -> str:
    kind = "" if row.kind == "plain" else f"<br>{escape(row.kind)}"
    price = "unknown" if row.usd_per_hour is None else f"{row.usd_per_hour:,.2f}"
    running = row.running_after_seconds
    share = 0.0 if running is None or longest == 0 else running / longest * 100
    bar = f'<span class="bar" aria-hidden="true"><i style="width:{share:.1f}%"></i></span>'
    failed = "" if running is not None else " failed"
    return (
        f'<tr><th scope="row">{escape(row.name)} <span class="id">{escape(row.instance_id)}</span></th>'
        f'<td data-label="Type">{escape(row.instance_type)}{kind}</td>'
        f'<td class="number" data-label="USD per hour">{price}</td>'
        f'<td class="number" data-label="Start called">{after(row.called_after_seconds)}</td>'
        f'<td class="number" data-label="Boot, as set">{row.boot_minutes:g} min</td>'
        f'<td class="number{failed}" data-label="Running">{after(running)}{bar}</td>'
        f'<td class="number" data-label="Confirmed">{after(row.confirmed_after_seconds)}</td></tr>'
    )


def _timeline(story: Story) -> str:
    rows = "".join(_step_row(step) for step in story.steps)
    heads = ("When (UTC)", "Who", "Did", "USD per hour|number", "Why")
    return (
        "<p>From the decisions as the Governor recorded them, and what people did in between. "
        "<code>governor explain</code> shows the same in an installed account.</p>"
        + _table("Actions and reasons, in order", heads, rows)
    )


def _step_row(step: Step) -> str:
    rate = "" if step.usd_per_hour is None else f"{step.usd_per_hour:,.2f}"
    details = "".join(f"<li>{escape(detail)}</li>" for detail in step.details)
    listed = f"<details><summary>which machines</summary><ul>{details}</ul></details>" if details else ""
    stops = ' class="halted"' if step.did.startswith("stops ") else ""
    return (
        f'<tr><td class="nowrap">{step.at:%d %b %H:%M}</td><td data-label="Who">{escape(step.actor)}</td>'
        f'<td data-label="Did"><span{stops}>{escape(step.did)}</span>{listed}</td>'
        f'<td class="number" data-label="USD per hour">{rate}</td>'
        f'<td data-label="Why">{escape(_sentence(step.why))}</td></tr>'
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _mails(story: Story) -> str:
    pages = sum(mail.severity == "page" for mail in story.mails)
    items = "".join(_mail(mail) for mail in story.mails)
    alarms = "".join(
        f'<tr><td class="nowrap">{mail.at:%d %b %H:%M}</td><td data-label="Topic">{escape(mail.severity)}</td>'
        f'<td class="subject">{escape(mail.subject)}</td></tr>'
        for mail in story.alarm_mails
    )
    return (
        f"<p>{len(story.mails)} mails in {_weeks(story)} weeks, {pages} of them pages, as they arrived.</p>"
        f'<div class="mails">{items}</div>'
        + _table(
            "Beside them, mails of the CloudWatch alarms that watch the Governor itself",
            ("When (UTC)", "Topic", "Subject"),
            alarms,
        )
    )


def _weeks(story: Story) -> int:
    return round((story.samples[-1].at - story.samples[0].at) / timedelta(weeks=1))


def _mail(mail: MailItem) -> str:
    return (
        f'<details><summary><span class="when nowrap">{mail.at:%d %b %H:%M}</span>'
        f'<span class="severity {mail.severity}">{escape(mail.severity)}</span>'
        f'<span class="subject">{escape(mail.subject)}</span><span class="to">{escape(mail.to)}</span></summary>'
        f"<pre>{escape(mail.body)}</pre></details>"
    )


def _settings(story: Story) -> str:
    rows = "".join(_change_row(change) for change in story.changes)
    heads = ("When (UTC)", "Who", "Parameter", "From", "To", "Outcome")
    return _table("Edits of parameters, and what became of each", heads, rows)


def _change_row(change: Change) -> str:
    outcome = "" if change.accepted else ' class="failed"'
    return (
        f'<tr><td class="nowrap">{change.at:%d %b %H:%M}</td><td data-label="Who">{escape(change.by)}</td>'
        f'<td data-label="Parameter"><code>{escape(change.name)}</code></td>'
        f'<td data-label="From">{escape(change.before)}</td>'
        f'<td data-label="To">{escape(change.after)}</td>'
        f'<td data-label="Outcome"><span{outcome}>{escape(_sentence(change.outcome))}</span></td></tr>'
    )


def _made(story: Story) -> str:
    figures = story.figures
    laps = "".join(
        f'<tr><td>{escape(lap.what)}</td><td class="number" data-label="Seconds">{lap.seconds:.1f}</td></tr>'
        for lap in story.laps
    )
    return (
        "<p><strong>Real:</strong> the CDK app and its templates, the CDK command line, the deployed functions with "
        "their layers and the Lambda runtime client, their decisions, the settings, the mails, and in the last scene "
        f"the policies of the deployed roles. {figures.function_runs:,} function runs made their part of "
        f"{figures.api_calls:,} AWS calls; {figures.stop_calls} of them stopped machines, {figures.start_calls} "
        f"started some, {figures.denied_calls} attempts were refused. The two <code>governor</code> commands ran as "
        "processes of their own, with a person’s keys and on the virtual clock.</p>"
        "<p><strong>Simulated:</strong> AWS itself, by an emulator on this machine: EC2 machines without GPUs that "
        "stop at once and, from the restore on, take the minutes to start that the demo sets; the bill, which is "
        "running hours times list price "
        f"({escape(story.prices_dated)}); AWS Budgets, which sees the bill every 8 to 16 hours here (8 to 24 in "
        "truth); and the clock, which is moved minute by minute where something happens and jumps over the hours in "
        "between. No function runs in a jump. The company, its people and its machines are made up; addresses end in "
        "<code>.example</code>, and no mail left this machine.</p>"
        "<p><strong>Edited first:</strong> the stage <code>local</code> starts armed and without grace, for tests. "
        "Before the story begins it is given what a production stage has: observe, 5 minutes of grace, 10 minutes to "
        "confirm an edit, and the company’s limit.</p>"
        + _table("Seconds of real time", ("Part", "Seconds|number"), laps)
    )


def _foot(story: Story) -> str:
    return (
        f"<footer>Stage {escape(story.stage)}, {escape(story.region)}. All times are virtual, in UTC. "
        "The data behind this page is in <code>story.json</code> beside it.</footer>"
    )


def _table(caption: str, heads: Iterable[str], rows: str) -> str:
    """A table; a head that ends in `|number` stands over figures."""
    cells = ""
    for head in heads:
        name, _, kind = head.partition("|")
        attribute = f' class="{kind}"' if kind else ""
        cells += f'<th scope="col"{attribute}>{escape(name)}</th>'
    return (
        f'<table class="cards"><caption>{escape(caption)}</caption><thead><tr>{cells}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _day(moment: datetime) -> str:
    return f"{moment:%a} {moment.day} {moment:%b %Y}"
