"""A right run of each scenario of `bench.accuracy.scenarios`: its calls, and the final text."""

from typing import Any, Final

Call = tuple[str, dict[str, Any]]
_DAY: Final = "2027-03-09"

SOLUTIONS: Final[dict[str, tuple[list[Call], str]]] = {
    "order_status": (
        [("find_customer", {"email": "mara@lindqvist.example"}), ("list_orders", {"customer_id": "CU-7731"})],
        "The newest order, SO-5513, is in transit.",
    ),
    "refund_damaged": (
        [("get_order", {"order_id": "SO-6027"}), ("refund_order", {"order_id": "SO-6027", "amount": 132.75})],
        "",
    ),
    "refund_too_late": (
        [("get_order", {"order_id": "SO-5190"}), ("deny_refund", {"order_id": "SO-5190", "reason": "95 days old"})],
        "",
    ),
    "address_change": (
        [
            ("find_customer", {"email": "tomas@okafor.example"}),
            (
                "update_address",
                {"customer_id": "CU-2048", "street": "Harbour Road 14b", "city": "Galway", "postcode": "H91 K7PV"},
            ),
        ],
        "",
    ),
    "cheaper_lamp": (
        [("get_product", {"name": "desk lamp"}), ("get_product", {"name": "floor lamp"})],
        "The floor lamp is cheaper, at 36.40, by 3.50.",
    ),
    "checkout": (
        [
            ("find_customer", {"email": "tomas@okafor.example"}),
            ("create_cart", {"customer_id": "CU-2048"}),
            ("get_product", {"name": "desk lamp"}),
            ("add_to_cart", {"cart_id": "CART-88", "sku": "LMP-310", "quantity": 2}),
            ("checkout", {"cart_id": "CART-88"}),
        ],
        "",
    ),
    "restock": ([("list_low_stock", {}), ("reorder", {"item_id": "IT-0127", "quantity": 21})], ""),
    "pages": (
        [
            ("list_items", {"page": 1}),
            ("list_items", {"page": 2}),
            ("reserve_item", {"item_id": "IT-0391", "quantity": 2}),
        ],
        "",
    ),
    "shipping_label": (
        [
            ("get_weight", {"item_id": "IT-0266"}),
            ("pounds_to_kilograms", {"pounds": 10}),
            ("print_label", {"item_id": "IT-0266", "kilograms": 4.54}),
        ],
        "",
    ),
    "transfer": (
        [
            ("find_item", {"name": "glass jug"}),
            ("find_warehouse", {"city": "Ghent"}),
            ("transfer_item", {"item_id": "IT-0203", "warehouse_id": "WH-8", "quantity": 5}),
        ],
        "",
    ),
    "id_format": (
        [("get_stock", {"item_id": "IT-408"}), ("get_stock", {"item_id": "IT-0408"})],
        "22 pieces of IT-0408 are in stock.",
    ),
    "purchase_price": (
        [("find_item", {"name": "oak board"}), ("get_purchase_price", {"item_id": "IT-0127"})],
        "We pay 7.35 for an oak board.",
    ),
    "assign": (
        [
            ("search_tickets", {"keyword": "VPN"}),
            ("find_agent", {"name": "Joel Baptiste"}),
            ("assign_ticket", {"ticket_id": "TK-322", "agent_id": "AG-31"}),
        ],
        "",
    ),
    "close_printer": (
        [
            ("search_tickets", {"keyword": "printer"}),
            ("close_ticket", {"ticket_id": "TK-301", "resolution": "toner replaced"}),
        ],
        "",
    ),
    "critical": ([("get_ticket", {"ticket_id": "TK-347"}), ("page_on_call", {"ticket_id": "TK-347"})], ""),
    "weekly_report": (
        [("list_open_tickets", {}), ("submit_report", {"open_count": 3, "oldest_ticket_id": "TK-322"})],
        "",
    ),
    "onboarding": (
        [
            ("create_user", {"name": "Lena Ferrant"}),
            ("create_mailbox", {"user_id": "U-5060"}),
            ("assign_laptop", {"user_id": "U-5060"}),
            (
                "send_welcome",
                {"user_id": "U-5060", "address": "l.ferrant@corp.example", "asset_tag": "NB-9917"},
            ),
        ],
        "",
    ),
    "no_tool_in_words": ([], "A help desk solves problems of users."),
    "book_free_time": (
        [
            ("find_person", {"name": "Ingrid Vale"}),
            ("free_times", {"person_id": "P-64", "date": _DAY}),
            ("book_meeting", {"person_id": "P-64", "date": _DAY, "start": "10:30"}),
        ],
        "",
    ),
    "move_review": (
        [
            ("find_event", {"title": "Budget review"}),
            ("move_event", {"event_id": "EV-805", "date": "2027-03-12", "start": "08:30"}),
        ],
        "",
    ),
    "cancel_dentist": (
        [("list_events", {"date": "2027-03-10"}), ("cancel_event", {"event_id": "EV-817"})],
        "",
    ),
    "time_zone": (
        [
            ("find_event", {"title": "Budget review"}),
            ("convert_time", {"utc_time": "11:15", "zone": "Asia/Kolkata"}),
        ],
        "It starts at 16:45 (4:45 PM) in Asia/Kolkata.",
    ),
    "room_for_nine": (
        [
            ("list_rooms", {"minimum_seats": 9}),
            ("book_room", {"room_id": "R-5", "date": "2027-03-15", "start": "13:00"}),
        ],
        "",
    ),
    "decline_pizza": ([("decline", {"reason": "I cannot order food."})], ""),
    "newest_report": (
        [("list_folder", {"path": "/reports"}), ("read_file", {"path": "/reports/2026-q3.txt"})],
        "The revenue was 48215 euros.",
    ),
    "delete_temporary": (
        [("find_files", {"ending": ".tmp"}), ("delete_file", {"path": "/photos/old_backup_7f3.tmp"})],
        "",
    ),
    "missing_folder": (
        [
            ("move_file", {"path": "/photos/img_0932.png", "new_path": "/archive/img_0932.png"}),
            ("make_folder", {"path": "/archive"}),
            ("move_file", {"path": "/photos/img_0932.png", "new_path": "/archive/img_0932.png"}),
        ],
        "The file has been moved.",
    ),
    "same_port": (
        [
            ("read_file", {"path": "/config/app.ini"}),
            ("write_setting", {"path": "/config/proxy.ini", "key": "target_port", "value": "8146"}),
        ],
        "",
    ),
    "copy_two": (
        [
            ("copy_file", {"path": "/reports/2026-q2.txt", "new_path": "/reports/q2-copy.txt"}),
            ("copy_file", {"path": "/config/app.ini", "new_path": "/config/app-copy.ini"}),
        ],
        "Both files have been copied.",
    ),
    "top_level": (
        [("list_folder", {"path": "/config"}), ("read_file", {"path": "/config/app.ini"})],
        "app.ini and proxy.ini; app.ini allows 3 retries.",
    ),
}
