"""Tasks of a calendar: people, free times, meetings, rooms, time zones."""

from typing import Any, Final

from bench.accuracy.scenarios.scenario import ScenarioTool, State, ToolScenario, change, integer, require, row, text

_TABLES: Final[dict[str, Any]] = {
    "people": {
        "P-64": {"name": "Ingrid Vale", "free": {"2027-03-09": ["10:30", "15:00"]}},
        "P-71": {"name": "Samir Haddad", "free": {"2027-03-09": ["09:00"]}},
    },
    "events": {
        "EV-805": {"title": "Budget review", "date": "2027-03-10", "start": "11:15", "zone": "UTC"},
        "EV-817": {"title": "Dentist", "date": "2027-03-10", "start": "14:00", "zone": "UTC"},
        "EV-822": {"title": "Team lunch", "date": "2027-03-11", "start": "12:00", "zone": "UTC"},
    },
    "rooms": {"R-2": {"name": "Birch", "seats": 4}, "R-5": {"name": "Cedar", "seats": 12}},
}
_ZONES: Final = {"Asia/Kolkata": 330, "America/Lima": -300, "Asia/Tokyo": 540}
"""Minutes from UTC."""
_DATE = text("Date, as YYYY-MM-DD")
_TIME = text("Time, as HH:MM")


def _find_person(state: State, name: str) -> Any:
    found = [key for key, value in state["people"].items() if value["name"].lower() == name.strip().lower()]
    require(found, f"No person has the name {name!r}. Use the full name.")
    return {"person_id": found[0]}


def _free_times(state: State, person_id: str, date: str) -> Any:
    person = row(state, "people", person_id, "Get the person id from find_person.")
    return {"date": date, "free": person["free"].get(date, [])}


def _book_meeting(state: State, person_id: str, date: str, start: str) -> Any:
    person = row(state, "people", person_id, "Get the person id from find_person.")
    require(start in person["free"].get(date, []), f"{start} on {date} is not free. Get free times from free_times.")
    return change(state, "book_meeting", person_id, date, start)


def _list_events(state: State, date: str) -> Any:
    return [
        {"event_id": key, "title": value["title"], "start": value["start"]}
        for key, value in state["events"].items()
        if value["date"] == date
    ]


def _find_event(state: State, title: str) -> Any:
    found = [key for key, value in state["events"].items() if value["title"].lower() == title.strip().lower()]
    require(found, f"No event has the title {title!r}.")
    return {"event_id": found[0]} | {key: state["events"][found[0]][key] for key in ("date", "start", "zone")}


def _move_event(state: State, event_id: str, date: str, start: str) -> Any:
    row(state, "events", event_id, "Get the event id from list_events or find_event.")
    require(len(start) == 5 and start[2] == ":", f"{start!r} is not a time. Write it as HH:MM, such as 08:30.")
    return change(state, "move_event", event_id, date, start)


def _cancel_event(state: State, event_id: str) -> Any:
    row(state, "events", event_id, "Get the event id from list_events or find_event.")
    return change(state, "cancel_event", event_id)


def _convert_time(state: State, utc_time: str, zone: str) -> Any:
    require(zone in _ZONES, f"The zone {zone!r} is unknown. Zones: {', '.join(_ZONES)}.")
    hours, colon, minutes = utc_time.partition(":")
    require(colon and hours.isdigit() and minutes.isdigit(), f"{utc_time!r} is not a time. Write it as HH:MM.")
    total = (int(hours) * 60 + int(minutes) + _ZONES[zone]) % 1440
    return {"local_time": f"{total // 60:02}:{total % 60:02}", "zone": zone}


def _list_rooms(state: State, minimum_seats: int) -> Any:
    rooms = {key: value for key, value in state["rooms"].items() if value["seats"] >= minimum_seats}
    return [{"room_id": key, **value} for key, value in rooms.items()]


def _book_room(state: State, room_id: str, date: str, start: str) -> Any:
    row(state, "rooms", room_id, "Get the room id from list_rooms.")
    return change(state, "book_room", room_id, date, start)


def _decline(state: State, reason: str) -> Any:
    require(reason.strip(), "The reason is empty.")
    return change(state, "decline")


FIND_PERSON = ScenarioTool("find_person", "Find the id of a person", _find_person, {"name": text("Full name")})
FREE_TIMES = ScenarioTool(
    "free_times",
    "Get the free times of a person on a day",
    _free_times,
    {"person_id": text("Person id"), "date": _DATE},
)
BOOK_MEETING = ScenarioTool(
    "book_meeting",
    "Book a meeting with a person at a free time",
    _book_meeting,
    {"person_id": text("Person id"), "date": _DATE, "start": _TIME},
)
LIST_EVENTS = ScenarioTool("list_events", "List the events of a day", _list_events, {"date": _DATE})
FIND_EVENT = ScenarioTool("find_event", "Find an event by its title", _find_event, {"title": text("Title")})
MOVE_EVENT = ScenarioTool(
    "move_event",
    "Move an event to another time",
    _move_event,
    {"event_id": text("Event id"), "date": _DATE, "start": _TIME},
)
CANCEL_EVENT = ScenarioTool("cancel_event", "Cancel an event", _cancel_event, {"event_id": text("Event id")})
CONVERT_TIME = ScenarioTool(
    "convert_time",
    "Convert a UTC time to a time zone",
    _convert_time,
    {"utc_time": text("UTC time, as HH:MM"), "zone": text("Time zone, such as Asia/Tokyo")},
)
LIST_ROOMS = ScenarioTool(
    "list_rooms", "List meeting rooms by size", _list_rooms, {"minimum_seats": integer("Number of seats needed")}
)
BOOK_ROOM = ScenarioTool(
    "book_room", "Book a meeting room", _book_room, {"room_id": text("Room id"), "date": _DATE, "start": _TIME}
)
DECLINE = ScenarioTool(
    "decline",
    "End the task if the other tools cannot do what the user wants",
    _decline,
    {"reason": text("Reason for the user")},
)

SCENARIOS: Final = (
    ToolScenario(
        "book_free_time",
        "Book a meeting with Ingrid Vale on 2027-03-09, at her first free time.",
        (FIND_PERSON, FREE_TIMES, BOOK_MEETING, LIST_ROOMS),
        _TABLES,
        steps=("find_person", "free_times", "book_meeting"),
        terminal=("book_meeting",),
        changes=(("book_meeting", "P-64", "2027-03-09", "10:30"),),
    ),
    ToolScenario(
        "move_review",
        "Move my event 'Budget review' to 2027-03-12 at 08:30.",
        (LIST_EVENTS, FIND_EVENT, MOVE_EVENT, CANCEL_EVENT),
        _TABLES,
        steps=("find_event", "move_event"),
        terminal=("move_event",),
        changes=(("move_event", "EV-805", "2027-03-12", "08:30"),),
    ),
    ToolScenario(
        "cancel_dentist",
        "List my events on 2027-03-10 and cancel the dentist.",
        (LIST_EVENTS, MOVE_EVENT, CANCEL_EVENT),
        _TABLES,
        steps=("list_events", "cancel_event"),
        terminal=("cancel_event",),
        changes=(("cancel_event", "EV-817"),),
    ),
    ToolScenario(
        "time_zone",
        "At what local time does the event 'Budget review' start in Asia/Kolkata?",
        (FIND_EVENT, CONVERT_TIME, MOVE_EVENT),
        _TABLES,
        steps=("find_event", "convert_time"),
        facts=(("16:45", "4:45"),),
        derived=("4:45",),
    ),
    ToolScenario(
        "room_for_nine",
        "We are 9 people. Book a room that is large enough, on 2027-03-15 at 13:00.",
        (LIST_ROOMS, BOOK_ROOM, LIST_EVENTS),
        _TABLES,
        steps=("list_rooms", "book_room"),
        terminal=("book_room",),
        changes=(("book_room", "R-5", "2027-03-15", "13:00"),),
    ),
    ToolScenario(
        "decline_pizza",
        "Order a pizza margherita to my office.",
        (LIST_EVENTS, BOOK_ROOM, DECLINE),
        _TABLES,
        steps=("decline",),
        terminal=("book_room", "decline"),
        changes=(("decline",),),
    ),
)
