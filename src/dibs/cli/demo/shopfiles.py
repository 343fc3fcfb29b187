"""The project of the team demo at the start: a small shop of stubs, each raises NotImplementedError("module.function"),
and its tests. What the scripted coders write in their place is in `shopcode`.
"""

from __future__ import annotations

FILES = {
    "README.md": """\
# A small shop

Amounts are whole cents. `python -m unittest` runs the tests.
""",
    ".gitignore": ".dibs/\n__pycache__/\n",
    "shop/__init__.py": "",
    "shop/money.py": '''\
"""Amounts of money are whole cents."""

RATES = {"DE": 19, "FR": 20, "CH": 8}


def parse(text: str) -> int:
    """'12.50' is 1250."""
    raise NotImplementedError("money.parse")


def show(cents: int) -> str:
    """1250 is '12.50'."""
    raise NotImplementedError("money.show")


def tax(cents: int, country: str) -> int:
    """The sales tax on a net price."""
    raise NotImplementedError("money.tax")
''',
    "shop/stock.py": '''\
"""What is on the shelf."""


class OutOfStock(Exception):
    pass


class Stock:
    def __init__(self, counts: dict[str, int] | None = None) -> None:
        self.counts = dict(counts or {})

    def put(self, article: str, number: int) -> None:
        """Onto the shelf."""
        raise NotImplementedError("stock.put")

    def take(self, article: str, number: int) -> None:
        """All of them or none: `OutOfStock`."""
        raise NotImplementedError("stock.take")

    def low(self, least: int) -> list[str]:
        """What there are fewer of than `least`, by name."""
        raise NotImplementedError("stock.low")
''',
    "shop/coupons.py": '''\
"""Coupons."""


def percent(code: str) -> int:
    """How much a coupon takes off; 0 if there is no such coupon."""
    raise NotImplementedError("coupons.percent")
''',
    "shop/texts.py": '''\
"""Words for customers."""


def text(key: str, language: str) -> str:
    """In the customer's language, or in English."""
    raise NotImplementedError("texts.text")
''',
    "shop/search.py": '''\
"""Finding articles."""


def find(words: str, articles: list[str]) -> list[str]:
    """The articles that have all the words in their names, shortest name first."""
    raise NotImplementedError("search.find")
''',
    "shop/mail.py": '''\
"""Mail to customers."""


def greeting(name: str, hour: int) -> str:
    """By the time of day."""
    raise NotImplementedError("mail.greeting")


def address(text: str) -> str:
    """An address as it is kept; ValueError if it is none."""
    raise NotImplementedError("mail.address")
''',
    "shop/shipping.py": '''\
"""Shipping."""

from shop import money


def cost(country: str, cents: int) -> int:
    """Free from 50.00 on, otherwise by country."""
    raise NotImplementedError("shipping.cost")
''',
    "shop/cart.py": '''\
"""A customer's cart."""

from shop import coupons, money


class Cart:
    def __init__(self) -> None:
        self.lines: dict[str, tuple[int, int]] = {}

    def add(self, article: str, price: str, number: int = 1) -> None:
        """The price is a text: '2.50'."""
        raise NotImplementedError("cart.add")

    def remove(self, article: str) -> None:
        """Whatever the number."""
        raise NotImplementedError("cart.remove")

    def total(self) -> int:
        """In cents."""
        raise NotImplementedError("cart.total")

    def reduced(self, code: str) -> int:
        """The total with a coupon."""
        raise NotImplementedError("cart.reduced")
''',
    "shop/orders.py": '''\
"""Orders."""

from shop import money
from shop.cart import Cart
from shop.stock import Stock


def place(cart: Cart, stock: Stock, country: str) -> dict[str, int]:
    """Takes the goods from the shelf; net, tax and total."""
    raise NotImplementedError("orders.place")
''',
    "shop/invoice.py": '''\
"""Invoices."""

from shop import money, texts


def lines(order: dict[str, int], language: str) -> list[str]:
    """An order as the customer reads it."""
    raise NotImplementedError("invoice.lines")
''',
    "tests/__init__.py": "",
    "tests/test_money.py": """\
import unittest

from shop import money


class Money(unittest.TestCase):
    def test_a_text_becomes_cents(self):
        self.assertEqual(money.parse("12.50"), 1250)

    def test_whole_amounts_need_no_point(self):
        self.assertEqual(money.parse("7"), 700)

    def test_cents_become_a_text(self):
        self.assertEqual(money.show(1205), "12.05")
""",
    "tests/test_tax.py": """\
import unittest

from shop import money


class Tax(unittest.TestCase):
    def test_tax_is_by_country(self):
        self.assertEqual([money.tax(1000, country) for country in ("DE", "FR", "CH")], [190, 200, 80])

    def test_an_unknown_country_is_an_error(self):
        with self.assertRaises(KeyError):
            money.tax(1000, "XX")
""",
    "tests/test_stock.py": """\
import unittest

from shop.stock import OutOfStock, Stock


class Shelf(unittest.TestCase):
    def test_what_is_put_can_be_taken(self):
        stock = Stock()
        stock.put("tea", 3)
        stock.take("tea", 2)
        self.assertEqual(stock.counts, {"tea": 1})

    def test_more_than_there_is_cannot_be_taken(self):
        stock = Stock({"tea": 1})
        with self.assertRaises(OutOfStock):
            stock.take("tea", 2)
        self.assertEqual(stock.counts, {"tea": 1})
""",
    "tests/test_low.py": """\
import unittest

from shop.stock import Stock


class Low(unittest.TestCase):
    def test_what_runs_low_is_named(self):
        self.assertEqual(Stock({"tea": 9, "milk": 1, "cups": 0}).low(2), ["cups", "milk"])
""",
    "tests/test_coupons.py": """\
import unittest

from shop import coupons


class Coupons(unittest.TestCase):
    def test_case_does_not_matter(self):
        self.assertEqual(coupons.percent("Welcome"), 10)

    def test_an_unknown_coupon_takes_nothing_off(self):
        self.assertEqual(coupons.percent("nonsense"), 0)
""",
    "tests/test_texts.py": """\
import unittest

from shop import texts


class Texts(unittest.TestCase):
    def test_a_known_language(self):
        self.assertEqual(texts.text("total", "de"), "Summe")

    def test_english_otherwise(self):
        self.assertEqual(texts.text("total", "xx"), "Total")
""",
    "tests/test_search.py": """\
import unittest

from shop import search


class Search(unittest.TestCase):
    def test_all_words_count_in_any_case(self):
        articles = ["Green tea, large", "Green tea", "Tea pot"]
        self.assertEqual(search.find("tea green", articles), ["Green tea", "Green tea, large"])
""",
    "tests/test_greeting.py": """\
import unittest

from shop import mail


class Greeting(unittest.TestCase):
    def test_it_knows_the_time_of_day(self):
        self.assertEqual(mail.greeting("Ann", 9), "Good morning, Ann")
        self.assertEqual(mail.greeting("Ann", 20), "Good evening, Ann")
""",
    "tests/test_address.py": """\
import unittest

from shop import mail


class Address(unittest.TestCase):
    def test_blanks_and_case_do_not_matter(self):
        self.assertEqual(mail.address(" Ann@Example.com"), "ann@example.com")

    def test_what_is_no_address_is_refused(self):
        with self.assertRaises(ValueError):
            mail.address("ann")
""",
    "tests/test_shipping.py": """\
import unittest

from shop import shipping


class Shipping(unittest.TestCase):
    def test_it_depends_on_the_country(self):
        self.assertEqual([shipping.cost("DE", 1000), shipping.cost("CH", 1000)], [490, 990])

    def test_large_orders_are_sent_for_free(self):
        self.assertEqual(shipping.cost("CH", 5000), 0)
""",
    "tests/test_cart.py": """\
import unittest

from shop.cart import Cart


class InTheCart(unittest.TestCase):
    def test_the_total_is_the_sum(self):
        cart = Cart()
        cart.add("tea", "2.50", 2)
        cart.add("milk", "1.20")
        cart.add("tea", "2.50")
        self.assertEqual(cart.total(), 870)

    def test_what_is_removed_is_gone(self):
        cart = Cart()
        cart.add("tea", "2.50", 2)
        cart.remove("tea")
        self.assertEqual(cart.total(), 0)
""",
    "tests/test_reduced.py": """\
import unittest

from shop.cart import Cart


class Reduced(unittest.TestCase):
    def test_a_coupon_takes_its_share_off(self):
        cart = Cart()
        cart.add("cups", "20.00")
        self.assertEqual([cart.reduced("WELCOME"), cart.reduced("nonsense")], [1800, 2000])
""",
    "tests/test_orders.py": """\
import unittest

from shop.cart import Cart
from shop.orders import place
from shop.stock import OutOfStock, Stock


class Orders(unittest.TestCase):
    def test_an_order_takes_the_goods_and_adds_the_tax(self):
        cart, stock = Cart(), Stock({"cups": 5})
        cart.add("cups", "10.00", 2)
        self.assertEqual(place(cart, stock, "DE"), {"net": 2000, "tax": 380, "total": 2380})
        self.assertEqual(stock.counts, {"cups": 3})

    def test_what_is_not_there_cannot_be_ordered(self):
        cart = Cart()
        cart.add("cups", "10.00", 2)
        with self.assertRaises(OutOfStock):
            place(cart, Stock(), "DE")
""",
    "tests/test_invoice.py": """\
import unittest

from shop.invoice import lines


class Invoice(unittest.TestCase):
    def test_it_is_in_the_customers_language(self):
        order = {"net": 2000, "tax": 380, "total": 2380}
        self.assertEqual(lines(order, "de"), ["Netto: 20.00", "Steuer: 3.80", "Summe: 23.80"])
""",
}
