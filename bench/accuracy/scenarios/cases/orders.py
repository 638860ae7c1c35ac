"""Tasks of a shop: customers, orders, refunds, carts."""

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

_TABLES: Final[dict[str, Any]] = {
    "customers": {
        "CU-7731": {"name": "Mara Lindqvist", "email": "mara@lindqvist.example"},
        "CU-2048": {"name": "Tomas Okafor", "email": "tomas@okafor.example"},
    },
    "orders": {
        "SO-5513": {
            "customer_id": "CU-7731",
            "status": "in transit",
            "carrier": "Nordpost",
            "total": 64.5,
            "age_days": 3,
        },
        "SO-5190": {
            "customer_id": "CU-7731",
            "status": "delivered",
            "carrier": "Nordpost",
            "total": 18.9,
            "age_days": 95,
        },
        "SO-6027": {"customer_id": "CU-2048", "status": "delivered", "carrier": "Velo", "total": 132.75, "age_days": 6},
    },
    "products": {
        "desk lamp": {"sku": "LMP-310", "price": 39.9},
        "floor lamp": {"sku": "LMP-820", "price": 36.4},
    },
    "carts": {},
}
_ORDER_ID = text("Order id, such as SO-1234")
_CUSTOMER_ID = text("Customer id, such as CU-1234")


def _find_customer(state: State, email: str) -> Any:
    found = [key for key, value in state["customers"].items() if value["email"] == email.strip().lower()]
    require(found, f"No customer has the email {email!r}.")
    return {"customer_id": found[0], "name": state["customers"][found[0]]["name"]}


def _list_orders(state: State, customer_id: str) -> Any:
    row(state, "customers", customer_id, "Get the customer id from find_customer.")
    return [
        {"order_id": key, "status": order["status"], "age_days": order["age_days"]}
        for key, order in state["orders"].items()
        if order["customer_id"] == customer_id
    ]


def _get_order(state: State, order_id: str) -> Any:
    order = row(state, "orders", order_id)
    order["is_read"] = True
    return {"order_id": order_id} | {key: order[key] for key in ("status", "carrier", "total", "age_days")}


def _refund_order(state: State, order_id: str, amount: float) -> Any:
    order = row(state, "orders", order_id)
    require(order["age_days"] <= 30, "Orders older than 30 days cannot be refunded. Use deny_refund.")
    require(amount == order["total"], "The amount must be the total of the order. Get it from get_order.")
    return change(state, "refund_order", order_id, amount)


def _deny_refund(state: State, order_id: str, reason: str) -> Any:
    order = row(state, "orders", order_id)
    require(order.get("is_read"), "Read the order with get_order first.")
    require(reason.strip(), "The reason is empty.")
    return change(state, "deny_refund", order_id)


def _update_address(state: State, customer_id: str, street: str, city: str, postcode: str) -> Any:
    row(state, "customers", customer_id, "Get the customer id from find_customer.")
    return change(state, "update_address", customer_id, street.strip(), city.strip(), postcode.strip())


def _get_product(state: State, name: str) -> Any:
    return {"name": name} | row(state, "products", name.strip().lower(), f"Products: {', '.join(state['products'])}.")


def _create_cart(state: State, customer_id: str) -> Any:
    row(state, "customers", customer_id, "Get the customer id from find_customer.")
    state["carts"]["CART-88"] = {"items": []}
    return {"cart_id": "CART-88"}


def _add_to_cart(state: State, cart_id: str, sku: str, quantity: int) -> Any:
    cart = row(state, "carts", cart_id, "Get the cart id from create_cart.")
    skus = [product["sku"] for product in state["products"].values()]
    require(sku in skus, f"No product has the SKU {sku!r}. Get it from get_product.")
    cart["items"].append(sku)
    return change(state, "add_to_cart", cart_id, sku, quantity)


def _checkout(state: State, cart_id: str) -> Any:
    cart = row(state, "carts", cart_id, "Get the cart id from create_cart.")
    require(cart["items"], "The cart is empty. Use add_to_cart first.")
    return change(state, "checkout", cart_id) | {"order_id": "SO-7002"}


FIND_CUSTOMER = ScenarioTool(
    "find_customer", "Find a customer by email address", _find_customer, {"email": text("Email address")}
)
LIST_ORDERS = ScenarioTool("list_orders", "List the orders of a customer", _list_orders, {"customer_id": _CUSTOMER_ID})
GET_ORDER = ScenarioTool(
    "get_order", "Get status, carrier, total and age of an order", _get_order, {"order_id": _ORDER_ID}
)
REFUND_ORDER = ScenarioTool(
    "refund_order",
    "Refund an order. The amount must be its total. Only for orders of the last 30 days",
    _refund_order,
    {"order_id": _ORDER_ID, "amount": number("Amount to refund")},
)
DENY_REFUND = ScenarioTool(
    "deny_refund",
    "Refuse a refund, for orders older than 30 days",
    _deny_refund,
    {"order_id": _ORDER_ID, "reason": text("Reason for the customer")},
)
UPDATE_ADDRESS = ScenarioTool(
    "update_address",
    "Change the address of a customer",
    _update_address,
    {
        "customer_id": _CUSTOMER_ID,
        "street": text("Street and number"),
        "city": text("City"),
        "postcode": text("Postcode"),
    },
)
GET_PRODUCT = ScenarioTool(
    "get_product", "Get SKU and price of a product", _get_product, {"name": text("Product name")}
)
CREATE_CART = ScenarioTool(
    "create_cart", "Create an empty cart for a customer", _create_cart, {"customer_id": _CUSTOMER_ID}
)
ADD_TO_CART = ScenarioTool(
    "add_to_cart",
    "Put a product into a cart",
    _add_to_cart,
    {"cart_id": text("Cart id"), "sku": text("SKU of the product"), "quantity": integer("Number of pieces")},
)
CHECKOUT = ScenarioTool("checkout", "Order what is in the cart", _checkout, {"cart_id": text("Cart id")})

SCENARIOS: Final = (
    ToolScenario(
        "order_status",
        "What is the status of the newest order of mara@lindqvist.example?",
        (FIND_CUSTOMER, LIST_ORDERS, UPDATE_ADDRESS),
        _TABLES,
        steps=("find_customer", "list_orders"),
        facts=("in transit",),
        forbidden_facts=("is delivered", "was delivered"),
    ),
    ToolScenario(
        "refund_damaged",
        "Order SO-6027 arrived broken. Refund it completely.",
        (GET_ORDER, REFUND_ORDER, UPDATE_ADDRESS),
        _TABLES,
        steps=("get_order", "refund_order"),
        terminal=("refund_order",),
        changes=(("refund_order", "SO-6027", 132.75),),
    ),
    ToolScenario(
        "refund_too_late",
        "The customer wants a refund for order SO-5190. Check the order, then refund it or refuse, by the 30 day rule.",
        (GET_ORDER, REFUND_ORDER, DENY_REFUND),
        _TABLES,
        steps=("get_order", "deny_refund"),
        terminal=("refund_order", "deny_refund"),
        changes=(("deny_refund", "SO-5190"),),
    ),
    ToolScenario(
        "address_change",
        "Customer tomas@okafor.example has moved to Harbour Road 14b, Galway, postcode H91 K7PV. Update the address.",
        (UPDATE_ADDRESS, FIND_CUSTOMER, LIST_ORDERS),
        _TABLES,
        steps=("find_customer", "update_address"),
        terminal=("update_address",),
        changes=(("update_address", "CU-2048", "Harbour Road 14b", "Galway", "H91 K7PV"),),
    ),
    ToolScenario(
        "cheaper_lamp",
        "Look up the prices of the desk lamp and the floor lamp. Which one is cheaper, and what does it cost?",
        (GET_PRODUCT, CREATE_CART, ADD_TO_CART),
        _TABLES,
        steps=("get_product", "get_product"),
        facts=("floor lamp", "36.4"),
        derived=("3.5",),
    ),
    ToolScenario(
        "checkout",
        "Order two desk lamps for tomas@okafor.example: find the customer, create a cart, get the product, put it into "
        "the cart, and check out.",
        (FIND_CUSTOMER, CREATE_CART, GET_PRODUCT, ADD_TO_CART, CHECKOUT),
        _TABLES,
        steps=("find_customer", "create_cart", "get_product", "add_to_cart", "checkout"),
        terminal=("checkout",),
        changes=(("add_to_cart", "CART-88", "LMP-310", 2), ("checkout", "CART-88")),
    ),
)
