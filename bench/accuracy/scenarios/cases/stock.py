"""Tasks of a warehouse: items, places, weights, labels."""

from typing import Any, Final

from bench.accuracy.scenarios.scenario import (
    ScenarioTool,
    State,
    ToolScenario,
    change,
    integer,
    number,
    require,
    row,
    text,
)

_PAGE_ITEMS: Final = 3
_TABLES: Final[dict[str, Any]] = {
    "items": {
        "IT-0114": {
            "name": "steel ladle",
            "stock": 40,
            "minimum": 10,
            "purchase_price": 2.15,
            "sale_price": 6.9,
            "pounds": 0.5,
        },
        "IT-0127": {
            "name": "oak board",
            "stock": 4,
            "minimum": 25,
            "purchase_price": 7.35,
            "sale_price": 19.5,
            "pounds": 4,
        },
        "IT-0203": {
            "name": "glass jug",
            "stock": 31,
            "minimum": 12,
            "purchase_price": 3.8,
            "sale_price": 11.2,
            "pounds": 2,
        },
        "IT-0266": {
            "name": "iron skillet",
            "stock": 18,
            "minimum": 8,
            "purchase_price": 9.6,
            "sale_price": 27.0,
            "pounds": 10,
        },
        "IT-0391": {
            "name": "copper kettle",
            "stock": 9,
            "minimum": 5,
            "purchase_price": 21.4,
            "sale_price": 58.0,
            "pounds": 3,
        },
        "IT-0408": {
            "name": "bamboo tray",
            "stock": 22,
            "minimum": 15,
            "purchase_price": 4.05,
            "sale_price": 12.5,
            "pounds": 1,
        },
    },
    "warehouses": {"WH-3": {"city": "Lyon"}, "WH-8": {"city": "Ghent"}},
}
_ITEM_ID = text("Item id")


def _item(state: State, item_id: str) -> dict[str, Any]:
    require(
        len(item_id) == 7 and item_id.startswith("IT-"),
        f"{item_id!r} is not an item id. Item ids are IT- and four digits, with leading zeros, such as IT-0042.",
    )
    return row(state, "items", item_id, "Look up the item id first.")


def _find_item(state: State, name: str) -> Any:
    found = [key for key, value in state["items"].items() if value["name"] == name.strip().lower()]
    require(found, f"No item has the name {name!r}. Use the singular, such as 'steel ladle'.")
    return {"item_id": found[0], "name": name}


def _list_items(state: State, page: int) -> Any:
    keys = list(state["items"])
    pages = len(keys) // _PAGE_ITEMS
    require(page <= pages, f"There are only {pages} pages.")
    start = (page - 1) * _PAGE_ITEMS
    rows = [{"item_id": key, "name": state["items"][key]["name"]} for key in keys[start : start + _PAGE_ITEMS]]
    return {"items": rows, "page": page, "pages": pages, "next_page": page + 1 if page < pages else None}


def _list_low_stock(state: State) -> Any:
    low = {key: value for key, value in state["items"].items() if value["stock"] < value["minimum"]}
    return [
        {"item_id": key, "name": value["name"], "stock": value["stock"], "missing": value["minimum"] - value["stock"]}
        for key, value in low.items()
    ]


def _reorder(state: State, item_id: str, quantity: int) -> Any:
    _item(state, item_id)
    return change(state, "reorder", item_id, quantity)


def _reserve_item(state: State, item_id: str, quantity: int) -> Any:
    require(quantity <= _item(state, item_id)["stock"], "The stock is smaller.")
    return change(state, "reserve_item", item_id, quantity)


def _get_stock(state: State, item_id: str) -> Any:
    return {"item_id": item_id, "stock": _item(state, item_id)["stock"]}


def _get_purchase_price(state: State, item_id: str) -> Any:
    return {"item_id": item_id, "purchase_price": _item(state, item_id)["purchase_price"]}


def _get_sale_price(state: State, item_id: str) -> Any:
    return {"item_id": item_id, "sale_price": _item(state, item_id)["sale_price"]}


def _get_weight(state: State, item_id: str) -> Any:
    return {"item_id": item_id, "weight_pounds": _item(state, item_id)["pounds"]}


def _pounds_to_kilograms(state: State, pounds: float) -> Any:
    return {"kilograms": round(pounds * 0.4536, 2)}


def _print_label(state: State, item_id: str, kilograms: float) -> Any:
    expected = round(_item(state, item_id)["pounds"] * 0.4536, 2)
    require(abs(kilograms - expected) < 0.02, "The weight is wrong. It must be in kilograms: use pounds_to_kilograms.")
    return change(state, "print_label", item_id)


def _find_warehouse(state: State, city: str) -> Any:
    found = [key for key, value in state["warehouses"].items() if value["city"].lower() == city.strip().lower()]
    require(found, f"There is not a warehouse in {city!r}.")
    return {"warehouse_id": found[0], "city": city}


def _transfer_item(state: State, item_id: str, warehouse_id: str, quantity: int) -> Any:
    _item(state, item_id)
    row(state, "warehouses", warehouse_id, "Get the warehouse id from find_warehouse.")
    return change(state, "transfer_item", item_id, warehouse_id, quantity)


FIND_ITEM = ScenarioTool(
    "find_item", "Find the id of an item by its name", _find_item, {"name": text("Name of the item")}
)
LIST_ITEMS = ScenarioTool(
    "list_items", "List ids and names of all items, page by page", _list_items, {"page": integer("Page, from 1")}
)
LIST_LOW_STOCK = ScenarioTool(
    "list_low_stock", "List the items below their minimum stock, and how many are missing", _list_low_stock
)
REORDER = ScenarioTool(
    "reorder", "Order more of an item", _reorder, {"item_id": _ITEM_ID, "quantity": integer("Number of pieces")}
)
RESERVE_ITEM = ScenarioTool(
    "reserve_item",
    "Reserve pieces of an item",
    _reserve_item,
    {"item_id": _ITEM_ID, "quantity": integer("Number of pieces")},
)
GET_STOCK = ScenarioTool("get_stock", "Get the number of pieces in stock", _get_stock, {"item_id": _ITEM_ID})
GET_PURCHASE_PRICE = ScenarioTool(
    "get_purchase_price", "Get the price that we pay to the supplier", _get_purchase_price, {"item_id": _ITEM_ID}
)
GET_SALE_PRICE = ScenarioTool(
    "get_sale_price", "Get the price that customers pay", _get_sale_price, {"item_id": _ITEM_ID}
)
GET_WEIGHT = ScenarioTool("get_weight", "Get the weight of an item in pounds", _get_weight, {"item_id": _ITEM_ID})
POUNDS_TO_KILOGRAMS = ScenarioTool(
    "pounds_to_kilograms", "Convert pounds to kilograms", _pounds_to_kilograms, {"pounds": number("Weight in pounds")}
)
PRINT_LABEL = ScenarioTool(
    "print_label",
    "Print the shipping label of an item",
    _print_label,
    {"item_id": _ITEM_ID, "kilograms": number("Weight in kilograms")},
)
FIND_WAREHOUSE = ScenarioTool(
    "find_warehouse", "Find the id of the warehouse in a city", _find_warehouse, {"city": text("City")}
)
TRANSFER_ITEM = ScenarioTool(
    "transfer_item",
    "Send pieces of an item to a warehouse",
    _transfer_item,
    {"item_id": _ITEM_ID, "warehouse_id": text("Warehouse id"), "quantity": integer("Number of pieces")},
)

SCENARIOS: Final = (
    ToolScenario(
        "restock",
        "Check which item is below its minimum stock, and reorder as many pieces as are missing.",
        (LIST_LOW_STOCK, REORDER, GET_SALE_PRICE),
        _TABLES,
        steps=("list_low_stock", "reorder"),
        terminal=("reorder",),
        changes=(("reorder", "IT-0127", 21),),
    ),
    ToolScenario(
        "pages",
        "Find the copper kettle in the list of items, and reserve 2 of them.",
        (LIST_ITEMS, RESERVE_ITEM, GET_STOCK),
        _TABLES,
        steps=("list_items", "list_items", "reserve_item"),
        loose_steps=("list_items",),
        terminal=("reserve_item",),
        changes=(("reserve_item", "IT-0391", 2),),
    ),
    ToolScenario(
        "shipping_label",
        "Print a shipping label for item IT-0266. We only know its weight in pounds, the label needs kilograms.",
        (GET_WEIGHT, POUNDS_TO_KILOGRAMS, PRINT_LABEL),
        _TABLES,
        steps=("get_weight", "pounds_to_kilograms", "print_label"),
        terminal=("print_label",),
        changes=(("print_label", "IT-0266"),),
    ),
    ToolScenario(
        "transfer",
        "Send 5 pieces of the glass jug to our warehouse in Ghent.",
        (FIND_ITEM, FIND_WAREHOUSE, TRANSFER_ITEM),
        _TABLES,
        steps=("find_item", "find_warehouse", "transfer_item"),
        terminal=("transfer_item",),
        changes=(("transfer_item", "IT-0203", "WH-8", 5),),
    ),
    ToolScenario(
        "id_format",
        "How many pieces of item IT-408 are in stock?",
        (GET_STOCK, GET_WEIGHT, REORDER),
        _TABLES,
        steps=("get_stock",),
        facts=("22",),
    ),
    ToolScenario(
        "purchase_price",
        "What do we pay our supplier for one oak board?",
        (GET_SALE_PRICE, GET_PURCHASE_PRICE, GET_WEIGHT, FIND_ITEM),
        _TABLES,
        steps=("find_item", "get_purchase_price"),
        facts=("7.35",),
        forbidden_facts=("19.5",),
    ),
)
