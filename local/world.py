"""The local AWS put together: every piece wired to the emulator, and the turn of one virtual minute."""

from __future__ import annotations

import threading
from datetime import datetime

from local.alarms import Alarms
from local.authorisation import Authorisation
from local.budget_actions import BudgetActions
from local.budgets import Budgets
from local.calls import Calls
from local.clock import Clock, minute_of, minutes_between
from local.cloudformation import ResourceTypes
from local.commands import Commands
from local.commitments import Commitments
from local.deletions import Deletions
from local.deliveries import DeliveryQueue
from local.ec2 import InstanceEvents
from local.emulator import Emulator
from local.events import Bus
from local.expiry import Expiry
from local.faults import Faults
from local.functions import Functions
from local.group_rules import GroupRules, InstanceRefreshes
from local.groups import GroupHealth
from local.invoker import EmulatorInvoker
from local.mail import Mailbox
from local.moto_bridge import Moto
from local.options import Options
from local.parameters import Parameters
from local.roles import Roles
from local.schedules import Schedules
from local.sources import AsynchronousSources
from local.spot import SpotRequests
from local.starts import Starts
from local.streams import EventSourceMappings
from local.subscriptions import Subscriptions
from local.tables import Tables
from local.wildcards import allow_wildcards


class World:
    """One local AWS. Everything in it runs in the launcher's process; functions run in their own."""

    def __init__(self, emulator: Emulator, options: Options, endpoint_url: str) -> None:
        self.options = options
        self.emulator = emulator
        self.clock = Clock()
        self.faults = Faults()
        self.mailbox = Mailbox(self.clock.now)
        self.bus = Bus(emulator, options.account_id)
        self.moto = Moto(emulator, options.account_id, options.seed)
        self.functions = Functions(emulator, options, endpoint_url)
        self.authorisation = Authorisation(emulator)
        self.calls = Calls(emulator, self.faults, self.clock.now, self.functions, self.authorisation)
        self.roles = Roles(emulator, self.moto, options.account_id)
        self.mappings = EventSourceMappings(emulator, self.clock.now, lambda record: self.deliveries.record(record))
        self.deliveries = DeliveryQueue(
            EmulatorInvoker(emulator, options.account_id),
            self.clock.now,
            emulator.concurrency.esm_wake,
            self.mappings.deliver_next,
        )
        self.sources = AsynchronousSources(emulator, self.deliveries, self.mailbox)
        self.subscriptions = Subscriptions(emulator)
        self.parameters = Parameters(
            emulator, self.bus, options.account_id, self.calls.caller_arn, empty_pages=options.empty_parameter_pages
        )
        allow_wildcards()
        self.spot = SpotRequests(self.clock.now)
        self.instance_events = InstanceEvents(self.bus, options.account_id, self.faults, self.spot)
        self.starts = Starts(self.instance_events, self.clock.now, self.roles.caller_may_use_key)
        self.commitments = Commitments(self.moto)
        self.group_health = GroupHealth(self.moto)
        self.group_rules = GroupRules()
        self.instance_refreshes = InstanceRefreshes(self.clock.now)
        self.commands = Commands(emulator, self.moto, options.account_id, self.clock.now)
        self.schedules = Schedules(emulator, self.deliveries)
        self.tables = Tables(emulator)
        self.budget_actions = BudgetActions(emulator, self.clock.now)
        self.resource_types = ResourceTypes(emulator, self.moto, self.budget_actions, options.account_id)
        self.deletions = Deletions(emulator)
        self.budgets = Budgets(emulator, self.moto, self.budget_actions, self.clock.now, options)
        self.expiry = Expiry(emulator)
        self.alarms = Alarms(emulator, self.bus, self.resource_types, self.clock.now, options)
        self._turn = threading.Lock()
        self._stopped = threading.Event()
        self._pump = threading.Thread(
            target=self.deliveries.keep_draining, args=(self._stopped,), name="deliveries", daemon=True
        )
        self.minutes_run = 0

    def start(self) -> None:
        """Begin delivering in the background."""
        self._pump.start()

    def end(self) -> None:
        """Stop delivering and end every function process."""
        self._stopped.set()
        self.emulator.concurrency.esm_wake.set()
        self.functions.end()
        self._pump.join(timeout=10)
        self.clock.follow_wall_clock()

    def settle(self) -> int:
        """Run everything that is due now; returns how many runs that took."""
        return self.deliveries.drain()

    def set_clock(self, moment: datetime) -> None:
        """Jump: no schedule fires for the time in between, and the countdowns of rate schedules start again."""
        with self._turn:
            self.clock.set(moment)
            self.schedules.clock_jumped()
            self.budgets.clock_jumped(moment)
            self.alarms.clock_jumped(moment)
            self.schedules.start_countdowns(moment)

    def advance_to(self, moment: datetime) -> int:
        """Run the time up to `moment` minute by minute, in order; returns how many function runs that took."""
        with self._turn:
            now = self.clock.now()
            runs = self.deliveries.drain()
            self.schedules.start_countdowns(now)
            for minute in minutes_between(now, moment):
                self.clock.set(minute)
                runs += self._run_minute(minute)
            if self.clock.now() < moment:
                self.clock.set(moment)
                runs += self.deliveries.drain()
            return runs

    def run_wall_clock_minute(self) -> int:
        """Run what is due at the current minute of the wall clock, without moving any clock."""
        with self._turn:
            now = minute_of(self.clock.now())
            self.schedules.start_countdowns(now)
            return self._run_minute(now)

    def _run_minute(self, minute: datetime) -> int:
        self.minutes_run += 1
        self.schedules.start_countdowns(minute)
        self._run_instances(minute)
        self.budgets.run_minute(minute)
        self.alarms.run_minute(minute)
        self.expiry.run_minute(minute)
        self.schedules.fire_due(minute)
        return self.deliveries.drain()

    def _run_instances(self, minute: datetime) -> None:
        """What EC2 and Auto Scaling do by themselves."""
        with self.moto.lock:
            self.starts.run_minute(minute)
            for region in self.moto.used_regions():
                self.spot.fulfil_open(self.moto.ec2(region))
        self.group_health.replace_unhealthy_members()
