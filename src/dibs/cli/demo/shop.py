"""The work of the demo: a small web shop as tasks, with what they depend on and the files that they need."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# id, description, depends on, paths. Nothing depends on a later line, so any number of first lines is a plan.
_PLAN = (
    ("schema", "Tables for products and orders", (), ("db/schema.sql",)),
    ("styles", "Colours and type", (), ("web/styles/**",)),
    ("sign-in", "Sign in with a link by e-mail", (), ("shop/auth/**",)),
    ("cart", "Cart: add, remove, count", ("schema",), ("shop/cart.py",)),
    ("prices", "Prices with tax and discounts", ("schema",), ("shop/money.py",)),
    ("shipping", "Shipping costs by country", ("schema",), ("shop/money.py",)),
    ("stock", "Reserve stock for an order", ("schema",), ("shop/stock.py",)),
    ("samples", "Sample products", ("schema",), ("db/samples/**",)),
    ("layout", "Page layout and menu", ("styles",), ("web/layout/**",)),
    ("product", "Product page", ("layout", "samples"), ("web/product/**",)),
    ("search", "Search box", ("layout", "samples"), ("web/search/**",)),
    ("orders", "Place an order", ("cart", "prices", "stock"), ("shop/orders.py",)),
    ("account", "Account page", ("sign-in", "layout"), ("web/account/**",)),
    ("cart-page", "Cart page", ("cart", "prices", "layout"), ("web/cart/**",)),
    ("low-stock", "Warn when stock runs low", ("stock",), ("shop/stock.py", "shop/mail/**")),
    ("receipts", "Receipts by e-mail", ("orders",), ("shop/mail/**",)),
    ("payments", "Card payments", ("orders",), ("shop/payments/**",)),
    ("refunds", "Refunds", ("orders",), ("shop/payments/refunds.py",)),
    ("admin", "Order list for the staff", ("orders", "sign-in"), ("web/admin/**",)),
    ("texts", "German and French texts", ("product", "cart-page"), ("web/**",)),
    ("load-test", "Load test of search and orders", ("search", "orders"), ("tests/load/**",)),
    ("checkout", "Checkout page", ("cart-page", "payments", "shipping"), ("web/checkout/**",)),
    ("manual", "Manual for the staff", ("admin", "receipts"), ("docs/**",)),
    ("buy-test", "Test a whole purchase", ("checkout",), ("tests/buy/**",)),
)


def tasks(number: int) -> list[dict[str, Any]]:
    """Definitions for `TaskBoard.add_many`. More than one shop's worth begins a second shop beside the first."""
    found = []
    for at in range(number):
        name, description, needs, paths = _PLAN[at % len(_PLAN)]
        shop = at // len(_PLAN) + 1
        mark = f"-{shop}" if shop > 1 else ""
        found.append(
            {
                "id": name + mark,
                "description": description + (f" (shop {shop})" if mark else ""),
                "depends_on": [need + mark for need in needs],
                "paths": [(f"shop{mark}/" if mark else "") + path for path in paths],
                "priority": -shop,
            }
        )
    return found
