"""Tasks on a tree of files."""

from typing import Any, Final

from bench.accuracy.scenarios.scenario import ScenarioTool, State, ToolScenario, change, require, row, text

_TABLES: Final[dict[str, Any]] = {
    "folders": {"/": {}, "/reports": {}, "/photos": {}, "/config": {}},
    "files": {
        "/reports/2026-q3.txt": {"text": "Revenue of the third quarter: 48,215 euros. Visitors: 1,930."},
        "/reports/2026-q2.txt": {"text": "Revenue of the second quarter: 39,870 euros. Visitors: 1,544."},
        "/photos/img_0932.png": {"text": ""},
        "/photos/old_backup_7f3.tmp": {"text": ""},
        "/config/app.ini": {"text": "port = 8146\nretries = 3"},
        "/config/proxy.ini": {"text": "target_port = 80"},
    },
}
_PATH = text("Path of the file")


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _list_folder(state: State, path: str) -> Any:
    path = path.rstrip("/") or "/"
    row(state, "folders", path, f"Folders: {', '.join(state['folders'])}.")
    return [entry for entry in (*state["folders"], *state["files"]) if entry != "/" and _folder(entry) == path]


def _read_file(state: State, path: str) -> Any:
    return row(state, "files", path, "Get paths from list_folder or find_files.")["text"]


def _find_files(state: State, ending: str) -> Any:
    found = [path for path in state["files"] if path.endswith(ending.lstrip("*"))]
    require(found, f"No file ends with {ending!r}.")
    return found


def _delete_file(state: State, path: str) -> Any:
    row(state, "files", path, "Get paths from list_folder or find_files.")
    del state["files"][path]
    return change(state, "delete_file", path)


def _make_folder(state: State, path: str) -> Any:
    require(path.startswith("/"), f"The path {path!r} must start with /.")
    require(path.rstrip("/") not in state["folders"], f"{path} exists already.")
    state["folders"][path.rstrip("/")] = {}
    return change(state, "make_folder", path.rstrip("/"))


def _move_file(state: State, path: str, new_path: str) -> Any:
    row(state, "files", path, "Get paths from list_folder or find_files.")
    folder = _folder(new_path)
    require(folder in state["folders"], f"The folder {folder} does not exist. Create it with make_folder.")
    state["files"][new_path] = state["files"].pop(path)
    return change(state, "move_file", path, new_path)


def _copy_file(state: State, path: str, new_path: str) -> Any:
    row(state, "files", path, "Get paths from list_folder or find_files.")
    state["files"][new_path] = state["files"][path]
    return change(state, "copy_file", path, new_path)


def _write_setting(state: State, path: str, key: str, value: str) -> Any:
    settings = row(state, "files", path, "Get paths from list_folder or find_files.")["text"]
    require(f"{key} = " in settings, f"{path} does not have the key {key!r}. Its text: {settings}")
    return change(state, "write_setting", path, key, value)


LIST_FOLDER = ScenarioTool(
    "list_folder", "List the files and folders in a folder", _list_folder, {"path": text("Path, / is the top")}
)
READ_FILE = ScenarioTool("read_file", "Read the text of a file", _read_file, {"path": _PATH})
FIND_FILES = ScenarioTool(
    "find_files", "Find files in all folders by the end of their name", _find_files, {"ending": text("Such as .txt")}
)
DELETE_FILE = ScenarioTool("delete_file", "Delete a file", _delete_file, {"path": _PATH})
MAKE_FOLDER = ScenarioTool("make_folder", "Create a folder", _make_folder, {"path": text("Path of the folder")})
MOVE_FILE = ScenarioTool(
    "move_file", "Move or rename a file", _move_file, {"path": _PATH, "new_path": text("New path of the file")}
)
COPY_FILE = ScenarioTool("copy_file", "Copy a file", _copy_file, {"path": _PATH, "new_path": text("Path of the copy")})
WRITE_SETTING = ScenarioTool(
    "write_setting",
    "Set the value of a key in a settings file",
    _write_setting,
    {"path": _PATH, "key": text("Key"), "value": text("New value")},
)

SCENARIOS: Final = (
    ToolScenario(
        "newest_report",
        "Look into the folder /reports, read the report of the third quarter, and tell me the revenue.",
        (LIST_FOLDER, READ_FILE, DELETE_FILE),
        _TABLES,
        steps=("list_folder", "read_file"),
        facts=(("48,215", "48215"),),
        forbidden_facts=("39,870",),
    ),
    ToolScenario(
        "delete_temporary",
        "Somewhere there is a .tmp file. Find it and delete it.",
        (FIND_FILES, DELETE_FILE, MOVE_FILE),
        _TABLES,
        steps=("find_files", "delete_file"),
        terminal=("delete_file",),
        changes=(("delete_file", "/photos/old_backup_7f3.tmp"),),
    ),
    ToolScenario(
        "missing_folder",
        "Move the file /photos/img_0932.png to /archive/img_0932.png.",
        (MOVE_FILE, MAKE_FOLDER, DELETE_FILE),
        _TABLES,
        steps=("make_folder", "move_file"),
        loose_steps=("move_file",),
        changes=(("make_folder", "/archive"), ("move_file", "/photos/img_0932.png", "/archive/img_0932.png")),
    ),
    ToolScenario(
        "same_port",
        "Read the port in /config/app.ini, and set target_port in /config/proxy.ini to the same port.",
        (READ_FILE, WRITE_SETTING, LIST_FOLDER),
        _TABLES,
        steps=("read_file", "write_setting"),
        terminal=("write_setting",),
        changes=(("write_setting", "/config/proxy.ini", "target_port", "8146"),),
    ),
    ToolScenario(
        "copy_two",
        "Copy /reports/2026-q2.txt to /reports/q2-copy.txt, and /config/app.ini to /config/app-copy.ini.",
        (COPY_FILE, MOVE_FILE, DELETE_FILE),
        _TABLES,
        steps=("copy_file", "copy_file"),
        changes=(
            ("copy_file", "/reports/2026-q2.txt", "/reports/q2-copy.txt"),
            ("copy_file", "/config/app.ini", "/config/app-copy.ini"),
        ),
    ),
    ToolScenario(
        "top_level",
        "Which settings files are in the config folder, and how many retries does app.ini allow? List the folder "
        "first, then read the file.",
        (LIST_FOLDER, READ_FILE, WRITE_SETTING),
        _TABLES,
        steps=("list_folder", "read_file"),
        facts=("proxy.ini", "3"),
    ),
)
