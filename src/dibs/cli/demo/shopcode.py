"""What the scripted agents of the team demo know: the code that the coders will write, and the lead's plan.

    BODIES    what belongs in place of each stub of the project (`shopfiles`)
    LATER     edits of other kinds: the rounding rule that nobody had planned, a test of a whole purchase
    PLAN      the lead's first tasks, for the tool `add_tasks`; FURTHER what it adds when a coder reports FINDING

A task's description names its functions and its test, and that is all a coder goes by: the words below are looked up.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BODIES = {
    "money.parse": """\
whole, _, rest = text.partition(".")
return int(whole) * 100 + int(rest.ljust(2, "0") or 0)
""",
    "money.show": """\
whole, rest = divmod(cents, 100)
return f"{whole}.{rest:02}"
""",
    "money.tax": """\
share = cents * RATES[country]
return share // 100
""",
    "stock.put": """\
before = self.counts.get(article, 0)
self.counts[article] = before + number
""",
    "stock.take": """\
if self.counts.get(article, 0) < number:
    raise OutOfStock(article)
self.counts[article] -= number
""",
    "stock.low": """\
few = [article for article, number in self.counts.items() if number < least]
return sorted(few)
""",
    "coupons.percent": """\
known = {"WELCOME": 10, "SORRY": 25}
return known.get(code.upper(), 0)
""",
    "texts.text": """\
english = {"net": "Net", "tax": "Tax", "total": "Total"}
known = {"de": {"net": "Netto", "tax": "Steuer", "total": "Summe"}}
return known.get(language, english)[key]
""",
    "search.find": """\
wanted = words.lower().split()
found = [article for article in articles if all(word in article.lower() for word in wanted)]
return sorted(found, key=len)
""",
    "mail.greeting": """\
part = "morning" if hour < 12 else "afternoon" if hour < 18 else "evening"
return f"Good {part}, {name}"
""",
    "mail.address": """\
kept = text.strip().lower()
if kept.count("@") != 1 or kept.startswith("@") or kept.endswith("@"):
    raise ValueError(f"{text!r} is no address")
return kept
""",
    "shipping.cost": """\
if cents >= money.parse("50.00"):
    return 0
return money.parse({"DE": "4.90", "FR": "6.90"}.get(country, "9.90"))
""",
    "cart.add": """\
_, before = self.lines.get(article, (0, 0))
self.lines[article] = (money.parse(price), before + number)
""",
    "cart.remove": "self.lines.pop(article, None)\n",
    "cart.total": "return sum(price * number for price, number in self.lines.values())\n",
    "cart.reduced": """\
kept = 100 - coupons.percent(code)
return self.total() * kept // 100
""",
    "orders.place": """\
for article, (_, number) in cart.lines.items():
    stock.take(article, number)
net = cart.total()
tax = money.tax(net, country)
return {"net": net, "tax": tax, "total": net + tax}
""",
    "invoice.lines": """\
keys = ("net", "tax", "total")
return [f"{texts.text(key, language)}: {money.show(order[key])}" for key in keys]
""",
}

# What to write: path, the text before (none: a new file), the text after.
LATER = {
    "money.rounded": (
        (
            "shop/money.py",
            "def tax(",
            'def rounded(hundredths: int) -> int:\n    """Whole cents; half a cent counts as one."""\n'
            "    return (hundredths + 50) // 100\n\n\ndef tax(",
        ),
        ("shop/money.py", "    return share // 100\n", "    return rounded(share)\n"),
    ),
    "tests.test_rounding": (
        (
            "tests/test_rounding.py",
            "",
            """\
import unittest

from shop import money


class Rounding(unittest.TestCase):
    def test_half_a_cent_counts_as_one(self):
        self.assertEqual([money.tax(50, "DE"), money.tax(3, "DE")], [10, 1])

    def test_less_does_not_count(self):
        self.assertEqual(money.tax(2, "DE"), 0)
""",
        ),
    ),
    "tests.test_purchase": (
        (
            "tests/test_purchase.py",
            "",
            """\
import unittest

from shop import invoice, money, orders, shipping
from shop.cart import Cart
from shop.stock import Stock


class Purchase(unittest.TestCase):
    def test_from_the_shelf_to_the_invoice(self):
        cart, stock = Cart(), Stock({"cups": 3, "tea": 9})
        cart.add("cups", "12.50", 2)
        cart.add("tea", "3.20")
        order = orders.place(cart, stock, "FR")
        self.assertEqual(invoice.lines(order, "fr")[-1], "Total: 33.84")
""",
        ),
        (
            "tests/test_purchase.py",
            '"Total: 33.84")\n',
            '"Total: 33.84")\n        self.assertEqual(stock.low(2), ["cups"])\n'
            '        self.assertEqual(money.show(shipping.cost("FR", cart.reduced("welcome"))), "6.90")\n',
        ),
    ),
}

FINDING = "finding: money.tax cuts cents off (19% of 0.50 is 9.5 cents); prices need a rounding rule"
FINDING_AT = "money.tax"
"""Whoever has written this function reports it."""


def _task(name: str, title: str, words: str, test: str, paths: tuple[str, ...], needs: tuple[str, ...]) -> Any:
    description = f"{title}: {words}. {test} must pass."
    return {"name": name, "description": description, "paths": list(paths), "needs": list(needs)}


PLAN: list[dict[str, Any]] = [
    _task("money", "Amounts", "write money.parse, money.show", "tests.test_money", ("shop/money.py",), ()),
    _task("tax", "Sales tax", "write money.tax", "tests.test_tax", ("shop/money.py",), ()),
    _task("stock", "Stock", "write stock.put, stock.take", "tests.test_stock", ("shop/stock.py",), ()),
    _task("low", "Low stock", "write stock.low", "tests.test_low", ("shop/stock.py",), ()),
    _task("coupons", "Coupons", "write coupons.percent", "tests.test_coupons", ("shop/coupons.py",), ()),
    _task("texts", "Texts", "write texts.text", "tests.test_texts", ("shop/texts.py",), ()),
    _task("search", "Search", "write search.find", "tests.test_search", ("shop/search.py",), ()),
    _task(
        "cart", "Cart", "write cart.add, cart.remove, cart.total", "tests.test_cart", ("shop/cart.py",), ("money",)
    ),
    _task("shipping", "Shipping", "write shipping.cost", "tests.test_shipping", ("shop/shipping.py",), ("money",)),
    _task(
        "reduced", "Coupons at the till", "write cart.reduced", "tests.test_reduced", ("shop/cart.py",),
        ("cart", "coupons"),
    ),
    _task("orders", "Orders", "write orders.place", "tests.test_orders", ("shop/orders.py",), ("cart", "stock", "tax")),
    _task("invoice", "Invoices", "write invoice.lines", "tests.test_invoice", ("shop/invoice.py",), ("texts", "money")),
    _task("greeting", "Greetings", "write mail.greeting", "tests.test_greeting", ("shop/mail.py",), ("texts",)),
    _task("address", "Addresses", "write mail.address", "tests.test_address", ("shop/mail.py",), ()),
    _task(
        "purchase", "A whole purchase", "write its test", "tests.test_purchase", ("tests/test_purchase.py",),
        ("orders", "invoice", "reduced", "shipping", "low"),
    ),
]  # fmt: skip

FURTHER = _task(
    "rounding",
    "Round half a cent up",
    "write money.rounded and its test",
    "tests.test_rounding",
    ("shop/money.py", "tests/test_rounding.py"),
    (),
)
WELCOME = (
    "The plan is on the board. Merge trunk, keep to your task's files, run its test, land on trunk. Report findings."
)
