"""Tasks of a help desk: tickets, agents, new staff."""

from typing import Any, Final

from bench.accuracy.scenarios.scenario import ScenarioTool, State, ToolScenario, change, integer, require, row, text

_TABLES: Final[dict[str, Any]] = {
    "tickets": {
        "TK-301": {
            "title": "Printer on floor 2 prints blank pages",
            "severity": "low",
            "age_days": 4,
            "status": "open",
        },
        "TK-322": {"title": "VPN disconnects every hour", "severity": "medium", "age_days": 11, "status": "open"},
        "TK-347": {"title": "Payroll database is down", "severity": "critical", "age_days": 1, "status": "open"},
        "TK-290": {"title": "Monitor flickers", "severity": "low", "age_days": 20, "status": "closed"},
    },
    "agents": {"AG-12": {"name": "Priya Raman"}, "AG-31": {"name": "Joel Baptiste"}},
    "users": {},
}
_TICKET_ID = text("Ticket id")
_HINT: Final = "Get ticket ids from search_tickets or list_open_tickets."


def _search_tickets(state: State, keyword: str) -> Any:
    terms = keyword.lower().split()
    found = {key: value for key, value in state["tickets"].items() if any(t in value["title"].lower() for t in terms)}
    require(found, f"No ticket contains {keyword!r}. Try one word.")
    return [{"ticket_id": key, "title": value["title"]} for key, value in found.items()]


def _get_ticket(state: State, ticket_id: str) -> Any:
    ticket = row(state, "tickets", ticket_id, _HINT)
    ticket["is_read"] = True
    return {"ticket_id": ticket_id} | {key: ticket[key] for key in ("title", "severity", "age_days", "status")}


def _list_open_tickets(state: State) -> Any:
    return [
        {"ticket_id": key, "age_days": value["age_days"]}
        for key, value in state["tickets"].items()
        if value["status"] == "open"
    ]


def _find_agent(state: State, name: str) -> Any:
    found = [key for key, value in state["agents"].items() if name.strip().lower() in value["name"].lower()]
    require(found, f"No agent has the name {name!r}.")
    return {"agent_id": found[0], "name": state["agents"][found[0]]["name"]}


def _assign_ticket(state: State, ticket_id: str, agent_id: str) -> Any:
    row(state, "tickets", ticket_id, _HINT)
    row(state, "agents", agent_id, "Get the agent id from find_agent.")
    return change(state, "assign_ticket", ticket_id, agent_id)


def _close_ticket(state: State, ticket_id: str, resolution: str) -> Any:
    ticket = row(state, "tickets", ticket_id, _HINT)
    require(ticket["status"] == "open", f"{ticket_id} is closed already.")
    require(resolution.strip(), "The resolution is empty.")
    return change(state, "close_ticket", ticket_id)


def _page_on_call(state: State, ticket_id: str) -> Any:
    require(row(state, "tickets", ticket_id, _HINT).get("is_read"), "Read the ticket with get_ticket first.")
    return change(state, "page_on_call", ticket_id)


def _queue_ticket(state: State, ticket_id: str) -> Any:
    require(row(state, "tickets", ticket_id, _HINT).get("is_read"), "Read the ticket with get_ticket first.")
    return change(state, "queue_ticket", ticket_id)


def _submit_report(state: State, open_count: int, oldest_ticket_id: str) -> Any:
    return change(state, "submit_report", open_count, oldest_ticket_id)


def _create_user(state: State, name: str) -> Any:
    state["users"]["U-5060"] = {"name": name}
    return change(state, "create_user", name.strip()) | {"user_id": "U-5060"}


def _create_mailbox(state: State, user_id: str) -> Any:
    row(state, "users", user_id, "Get the user id from create_user.")["has_mailbox"] = True
    return change(state, "create_mailbox", user_id) | {"address": "l.ferrant@corp.example"}


def _assign_laptop(state: State, user_id: str) -> Any:
    row(state, "users", user_id, "Get the user id from create_user.")["tag"] = "NB-9917"
    return change(state, "assign_laptop", user_id) | {"asset_tag": "NB-9917"}


def _send_welcome(state: State, user_id: str, address: str, asset_tag: str) -> Any:
    user = row(state, "users", user_id, "Get the user id from create_user.")
    require(user.get("has_mailbox"), "The user does not have a mailbox. Use create_mailbox first.")
    require(user.get("tag"), "The user does not have a laptop. Use assign_laptop first.")
    return change(state, "send_welcome", user_id, address.strip(), asset_tag.strip())


SEARCH_TICKETS = ScenarioTool(
    "search_tickets", "Search tickets by a word of their title", _search_tickets, {"keyword": text("Word of the title")}
)
GET_TICKET = ScenarioTool(
    "get_ticket", "Get title, severity and age of a ticket", _get_ticket, {"ticket_id": _TICKET_ID}
)
LIST_OPEN_TICKETS = ScenarioTool("list_open_tickets", "List all open tickets with their age", _list_open_tickets)
FIND_AGENT = ScenarioTool(
    "find_agent", "Find the id of a support agent", _find_agent, {"name": text("Name of the agent")}
)
ASSIGN_TICKET = ScenarioTool(
    "assign_ticket",
    "Assign a ticket to an agent",
    _assign_ticket,
    {"ticket_id": _TICKET_ID, "agent_id": text("Agent id")},
)
CLOSE_TICKET = ScenarioTool(
    "close_ticket", "Close a ticket", _close_ticket, {"ticket_id": _TICKET_ID, "resolution": text("How it was solved")}
)
PAGE_ON_CALL = ScenarioTool(
    "page_on_call", "Call the engineer on duty, for critical tickets only", _page_on_call, {"ticket_id": _TICKET_ID}
)
QUEUE_TICKET = ScenarioTool(
    "queue_ticket", "Put a ticket that is not critical into the queue", _queue_ticket, {"ticket_id": _TICKET_ID}
)
SUBMIT_REPORT = ScenarioTool(
    "submit_report",
    "Submit the weekly report. This ends the task",
    _submit_report,
    {"open_count": integer("Number of open tickets"), "oldest_ticket_id": text("Id of the oldest open ticket")},
)
CREATE_USER = ScenarioTool("create_user", "Create a user account", _create_user, {"name": text("Full name")})
CREATE_MAILBOX = ScenarioTool(
    "create_mailbox", "Create the mailbox of a user", _create_mailbox, {"user_id": text("User id")}
)
ASSIGN_LAPTOP = ScenarioTool("assign_laptop", "Assign a laptop to a user", _assign_laptop, {"user_id": text("User id")})
SEND_WELCOME = ScenarioTool(
    "send_welcome",
    "Send the welcome message to a new user. This ends the task",
    _send_welcome,
    {"user_id": text("User id"), "address": text("Mail address"), "asset_tag": text("Asset tag of the laptop")},
)

SCENARIOS: Final = (
    ToolScenario(
        "assign",
        "Assign the ticket about the VPN to Joel Baptiste.",
        (SEARCH_TICKETS, FIND_AGENT, ASSIGN_TICKET, CLOSE_TICKET),
        _TABLES,
        steps=("search_tickets", "find_agent", "assign_ticket"),
        terminal=("assign_ticket",),
        changes=(("assign_ticket", "TK-322", "AG-31"),),
    ),
    ToolScenario(
        "close_printer",
        "The printer problem is solved: the toner was replaced. Find its ticket and close it.",
        (SEARCH_TICKETS, GET_TICKET, ASSIGN_TICKET, CLOSE_TICKET),
        _TABLES,
        steps=("search_tickets", "close_ticket"),
        terminal=("close_ticket",),
        changes=(("close_ticket", "TK-301"),),
    ),
    ToolScenario(
        "critical",
        "Read ticket TK-347. If it is critical, page the engineer on duty, otherwise put it into the queue.",
        (GET_TICKET, QUEUE_TICKET, PAGE_ON_CALL),
        _TABLES,
        steps=("get_ticket", "page_on_call"),
        terminal=("queue_ticket", "page_on_call"),
        changes=(("page_on_call", "TK-347"),),
    ),
    ToolScenario(
        "weekly_report",
        "Look at the open tickets and submit the weekly report: their number, and the id of the oldest.",
        (LIST_OPEN_TICKETS, SUBMIT_REPORT, CLOSE_TICKET),
        _TABLES,
        steps=("list_open_tickets", "submit_report"),
        terminal=("submit_report",),
        changes=(("submit_report", 3, "TK-322"),),
    ),
    ToolScenario(
        "onboarding",
        "Lena Ferrant starts on Monday. Create her user account, create a mailbox, assign a laptop, and send the "
        "welcome message.",
        (CREATE_USER, CREATE_MAILBOX, ASSIGN_LAPTOP, SEND_WELCOME),
        _TABLES,
        steps=("create_user", "create_mailbox", "assign_laptop", "send_welcome"),
        terminal=("send_welcome",),
        changes=(
            ("create_user", "Lena Ferrant"),
            ("create_mailbox", "U-5060"),
            ("assign_laptop", "U-5060"),
            ("send_welcome", "U-5060", "l.ferrant@corp.example", "NB-9917"),
        ),
    ),
    ToolScenario(
        "no_tool_in_words",
        "Thanks for your help yesterday! In one sentence, what is a help desk for?",
        (SEARCH_TICKETS, GET_TICKET, CLOSE_TICKET),
        _TABLES,
    ),
)
