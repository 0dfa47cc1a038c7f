"""Prints docs/settings.md, the reference of every setting, from their declarations.

`python -m tools.settings_reference > docs/settings.md`; a test compares the page with what this prints.
"""

from __future__ import annotations

from governor.domain.settings import SETTINGS, SettingSpec
from governor.shell.seeding import PAUSE

INTRODUCTION = """\
# Settings

Every threshold is one parameter of AWS Systems Manager Parameter Store, named `/governor/<stage>/<area>/<name>`.
All are of type String in the standard tier, which costs nothing. This page is made by `python -m
tools.settings_reference`.

The whole tree is validated as one, within a minute of an edit and usually within seconds. If all of it is valid it
becomes a new version, one message of severity *info* says who changed what from what to what, and the functions
work with it from their next run; the budget guard runs at once. If anything in it is wrong, **nothing** of it is
used: the last valid version stays in force, and one message of severity *warn* names the parameter, its value, the
rule and who wrote it. Edits that are right but stand beside one that is wrong wait until that is corrected; the
message lists them.

A deploy creates the parameters that are missing and never overwrites or deletes one: an edit stays. Deleting the
stacks leaves all parameters in place.

## The settings

| parameter | must be | default | unit | meaning |
| --- | --- | --- | --- | --- |
"""

RULES = """
The defaults are those of a new stage; `cdk.json` may start a stage with others (`initial_mode`, `budget.limit_usd`
and `settings`), which matter only on the first deploy.

## Rules between settings

- `budget/warn-percent` must be below `budget/stop-percent`. To move both, edit one after the other in the order that
  keeps this true; else the first edit is rejected with a message, and both count as soon as the second is in.
- `budget/stop-preemptible-percent` must lie above `budget/warn-percent` and at most at `budget/stop-percent`, or be
  `same`.

## How a value is written

Digits 0 to 9 with a point before decimals (at most 8 digits before it and 4 after it): no sign, thousands separator,
exponent, percent sign or space. Lists are lower-case words with commas and without spaces, each word once. `95` and
`95.0` are the same value, and changing one into the other changes nothing. `same` follows another setting. Tags are
written `key=value` with commas between them, or `any`; pairs are written `name=value`, or `none`.

## What happens when something is wrong

| what | what happens |
| --- | --- |
| a value that breaks its pattern | Parameter Store refuses it at once; where it does not, the next row holds |
| a value out of range or against a rule between settings | the last valid version stays in force, one message says so |
| a name that is no setting, such as a misspelt one | the same; the message names the nearest setting |
| a setting that was deleted | the same; its last valid value counts until somebody puts it back |
| Parameter Store throttles or denies reading | the last valid version stays in force; an alarm pages if it lasts |
| no valid version at all (first deploy) | the Governor does nothing, and the message is a page |

A deploy puts a deleted parameter back only when its seeder runs: when a setting was added, or when a first value in
`cdk.json` changed.

The same wrong state is told once, however long it lasts; a different one is told again; one message says that all is
valid again.
"""

PAUSE_PAGE = f"""
## The pause

`/governor/<stage>/{PAUSE.name}` lies outside the tree. It is read anew before every batch of changes, and works
while the settings are invalid.

| text | meaning |
| --- | --- |
| `off` | act as the settings say |
| `on` | hold every stop, release, launch and purchase until a person lifts it |
| `on until 2026-12-01T06:00Z` | hold until that moment (UTC unless an offset such as `+02:00` is given) |
| any of these followed by ` because <why>` | the same; the reason stands in decisions and messages |
| anything else, or no parameter | hold, and the alarm on `PauseUnreadable` pages |

`on` and `off` may be written with capitals, as phones do.

## Keeps and overrides

They lie beside the pause, and are read anew before every batch of changes as well. Deleting the parameter lifts one.

| parameter | text | meaning |
| --- | --- | --- |
| `control/keep/<instance id>` | `until 2026-12-01T06:00Z`, or `on` | this instance is not stopped |
| `control/override/<any name>` | `<what> until <time>`, `<what> up to <n> usd`, or both | it is not stopped |

`<what>` is `budget`, `project <name>` or `instance <id>` (a name of several words in double quotes);
`up to <n> usd`, 0.01 to 999999999.99, ends an override when the month's spend has reached that amount.

Either may end with ` because <why>`. The tag `governor:keep` of an instance holds the same texts as a keep. What cannot
be read holds: an odd keep keeps its instance, an odd override holds the whole budget and pages.

## How to edit

In the console: Systems Manager, Parameter Store, choose the parameter, *Edit*, change the value, *Save changes*.
Every message about a setting carries the address of its page.

With the Governor's command, which checks the whole tree before it writes:

    governor settings set budget/stop-percent 90 --stage <stage>
    governor settings history --stage <stage>
    governor pause --because 'the auditors are here' --stage <stage>
    governor unpause --because 'they left' --stage <stage>

With the AWS CLI:

    aws ssm put-parameter --overwrite --name /governor/<stage>/budget/stop-percent --value 90
    aws ssm get-parameter-history --name /governor/<stage>/budget/stop-percent
    aws ssm put-parameter --overwrite --name /governor/<stage>/{PAUSE.name} --value 'on because the auditors are here'
"""


def row(spec: SettingSpec) -> str:
    """The line of one setting in the table."""
    star = " *" if spec.moves_stop_level else ""
    return f"| `{spec.name}`{star} | {spec.rule} | `{spec.default}` | {spec.unit} | {spec.description} |"


def page() -> str:
    """The whole page."""
    stars = (
        "\n\\* moves the stop level: after an edit of it a stop is held for `budget/confirm-minutes`, with a page.\n"
    )
    return INTRODUCTION + "\n".join(row(spec) for spec in SETTINGS) + "\n" + stars + RULES + PAUSE_PAGE


if __name__ == "__main__":
    print(page(), end="")
