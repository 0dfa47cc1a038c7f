"""The demo: the app deployed into the local AWS, three months of a small company's GPU bill, and a report of it.

`python -m demo` plays it. Product code never imports this package.
"""
