"""A small shop to crawl: `python -m shop.site --port 8765 --day 1`.

What it serves depends on the day alone, and on how often a page was asked for that day.
`POST /day/2` turns to the next day. `GET /log.json` says what was downloaded, and
`GET /catalog.json` what the shop sells today; robots.txt asks crawlers not to look there.
"""

from __future__ import annotations

import argparse
import json
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PAGE_SIZE = 6

GOODS = {
    "tea": (
        ("Green", "Black", "White", "Oolong", "Jasmine", "Mint", "Ginger"),
        ("tea, 100 g", "tea, 20 bags"),
    ),
    "coffee": (
        ("Morning", "Harbour", "Mountain", "Midnight", "Garden", "Island"),
        ("beans, 500 g", "coffee, ground, 250 g"),
    ),
    "cups": (
        ("Blue", "Red", "Striped", "Plain", "Tall", "Small", "Glass"),
        ("cup", "mug with handle"),
    ),
}

# What is special, by the number in the SKU.
FLAKY = 1004  # 503 at the first request of each day
UPDATING = 1009  # says "come back" at the first request of each day
BROKEN = 1016  # on day 1 its price is a sentence
REMOVED = 1022  # sold on day 1 only, 410 from then on
NEW = 1041  # sold from day 2 on
OFFERS = (1002, 1007, 1013, 1020, 1028, 1035)  # also at /offers/…, as the same article
OLD_PAGES = {"mint-tea-loose": 1006}  # pages that only say which article replaced them


@dataclass(frozen=True)
class Product:
    number: int
    category: str
    name: str

    @property
    def sku(self):
        return f"T{self.number}"

    @property
    def slug(self):
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def ean(self):
        digits = f"40123450{self.number}"
        total = sum(int(digit) * (3 if i % 2 else 1) for i, digit in enumerate(digits))
        return f"{digits}{-total % 10}"

    def sold_on(self, day):
        return (self.number != REMOVED or day == 1) and (self.number != NEW or day > 1)

    def price(self, day):
        """Every seventh price rises by half a euro a day."""
        cents = 300 + self.number * 37 % 900 + (50 * (day - 1) if self.number % 7 == 0 else 0)
        return f"{cents / 100:.2f}"

    def stock(self, day):
        """Of every fifth article some are sold each day."""
        return max(0, self.number * 11 % 23 - (3 * (day - 1) if self.number % 5 == 0 else 0))

    def stars(self, day):
        """Ratings: more of them, the more days have passed."""
        return [1 + self.number * (i + 3) % 5 for i in range(self.number % 4 + day)]


def make_products():
    goods = [
        (category, f"{first} {second}")
        for category, (firsts, seconds) in GOODS.items()
        for second in seconds
        for first in firsts
    ]
    goods.append(("coffee", "Evening beans, 500 g"))
    return [Product(1001 + i, category, name) for i, (category, name) in enumerate(goods)]


PRODUCTS = make_products()
BY_SKU = {product.sku: product for product in PRODUCTS}
BY_SLUG = {product.slug: product for product in PRODUCTS}


def html(title, body, head=""):
    title = escape(title)
    return (
        f"<!doctype html><html><head><title>{title}</title>{head}</head>"
        f"<body><h1>{title}</h1>{body}</body></html>"
    )


@dataclass
class Shop:
    """The pages. Each method returns a status, a content type and a body."""

    day: int = 1
    log: list = field(default_factory=list)
    asked: Counter = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, target):
        """The answer to a GET, noted in the log."""
        url = urlsplit(target)
        kind, _, rest = url.path.strip("/").partition("/")
        with self.lock:
            self.asked[self.day, url.path] += 1
            first = self.asked[self.day, url.path] == 1
        page = {
            "": self.index,
            "robots.txt": self.robots,
            "category": lambda: self.category(rest, parse_qs(url.query).get("page", ["1"])[0]),
            "product": lambda: self.product(rest, first),
            "offers": lambda: self.product(rest, first) if rest else self.offers(),
            "reviews": lambda: self.reviews(rest),
            "images": lambda: self.image(rest.removesuffix(".svg")),
        }.get(kind, self.missing)
        answer = page()
        with self.lock:
            self.log.append({"day": self.day, "path": target, "status": answer[0]})
        return answer

    def missing(self):
        return 404, "text/html", html("Not found", "<p>No such page.</p>")

    def robots(self):
        return 200, "text/plain", "User-agent: *\nDisallow: /cart\nDisallow: /log.json\n"

    def index(self):
        links = "".join(f'<li><a class="category" href="/category/{c}">{c}</a></li>' for c in GOODS)
        links += '<li><a class="category" href="/offers">offers</a></li>'
        return 200, "text/html", html("The tea shop", f"<ul>{links}</ul>")

    def category(self, name, page):
        if name not in GOODS:
            return self.missing()
        slugs = [p.slug for p in PRODUCTS if p.category == name and p.sold_on(self.day)]
        slugs += [
            slug for slug, number in OLD_PAGES.items() if BY_SKU[f"T{number}"].category == name
        ]
        pages = -(-len(slugs) // PAGE_SIZE)
        if page not in map(str, range(1, pages + 1)):
            return self.missing()
        page = int(page)
        shown = slugs[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
        links = "".join(f'<li><a class="product" href="/product/{s}">{s}</a></li>' for s in shown)
        # Every page links to every other, back and forth.
        pager = "".join(
            f'<a class="page" href="/category/{name}?page={n}">{n}</a> '
            for n in range(2, pages + 1)
        )
        body = f'<ul>{links}</ul><p><a class="first" href="/category/{name}">1</a> {pager}</p>'
        return 200, "text/html", html(name, body)

    def offers(self):
        links = "".join(
            f'<li><a class="product" href="/offers/{p.slug}">{escape(p.name)}</a></li>'
            for p in PRODUCTS
            if p.number in OFFERS
        )
        return 200, "text/html", html("offers", f"<ul>{links}</ul>")

    def product(self, slug, first):
        if slug in OLD_PAGES:
            to = BY_SKU[f"T{OLD_PAGES[slug]}"].slug
            body = f'<p>Now sold as <a class="moved" href="/product/{to}">{to}</a>.</p>'
            return 200, "text/html", html(slug, body)
        product = BY_SLUG.get(slug)
        if product is None or (product.number == NEW and not product.sold_on(self.day)):
            return self.missing()
        if not product.sold_on(self.day):
            return 410, "text/html", html(product.name, "<p>No longer sold.</p>")
        if product.number == FLAKY and first:
            return 503, "text/html", html("Too busy", "<p>Try again in a second.</p>")
        if product.number == UPDATING and first:
            body = '<p class="updating">We are just counting our stock. Come back soon.</p>'
            return 200, "text/html", html(product.name, body)
        price = f"€ {product.price(self.day)}"
        if product.number == BROKEN and self.day == 1:
            price = "€ ask us"
        body = (
            f'<dl><dt>SKU</dt><dd class="sku">{product.sku}</dd>'
            f'<dt>EAN</dt><dd class="ean">{product.ean}</dd>'
            f'<dt>Price</dt><dd class="price">{price}</dd>'
            f'<dt>In stock</dt><dd class="stock">{product.stock(self.day)}</dd></dl>'
            f'<img class="photo" src="/images/{product.sku}.svg" alt="">'
            f'<p><a class="reviews" href="/reviews/{product.sku}">Reviews</a> '
            f'<a class="cart" href="/cart?add={product.sku}">Buy</a></p>'
        )
        head = f'<link rel="canonical" href="/product/{product.slug}">'
        return 200, "text/html", html(product.name, body, head)

    def reviews(self, sku):
        product = BY_SKU.get(sku)
        if product is None or not product.sold_on(self.day):
            return self.missing()
        stars = "".join(f'<li class="stars">{n}</li>' for n in product.stars(self.day))
        return 200, "text/html", html(f"Reviews of {product.name}", f"<ul>{stars}</ul>")

    def image(self, sku):
        if sku not in BY_SKU:
            return self.missing()
        hue = BY_SKU[sku].number * 47 % 360
        svg = (
            '<svg xmlns="http://www.w3.org/2000/svg" width="80" height="80">'
            f'<circle cx="40" cy="40" r="30" fill="hsl({hue} 60% 50%)"/></svg>'
        )
        return 200, "image/svg+xml", svg

    def catalog(self):
        return [
            {
                "sku": p.sku,
                "ean": p.ean,
                "name": p.name,
                "price": p.price(self.day),
                "stock": p.stock(self.day),
            }
            for p in PRODUCTS
            if p.sold_on(self.day)
        ]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        shop = self.server.shop
        if self.path == "/log.json":
            self.answer(200, "application/json", json.dumps({"day": shop.day, "log": shop.log}))
        elif self.path == "/catalog.json":
            self.answer(200, "application/json", json.dumps(shop.catalog()))
        else:
            self.answer(*shop.get(self.path))

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if match := re.fullmatch(r"/day/([1-9]\d{0,3})", self.path):
            self.server.shop.day = int(match[1])
            self.answer(200, "text/plain", f"It is day {match[1]}.\n")
        else:
            self.answer(404, "text/plain", "POST /day/N\n")

    def answer(self, status, content_type, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{content_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if status == 503:  # noqa: PLR2004
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args):
        """Be quiet: /log.json is the log."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port, day):
        self.shop = Shop(day)
        super().__init__(("127.0.0.1", port), Handler)


def main():
    parser = argparse.ArgumentParser(prog="python -m shop.site", description="A shop to crawl.")
    parser.add_argument("--port", type=int, default=8765, help="0 takes a free one")
    parser.add_argument("--day", type=int, default=1)
    options = parser.parse_args()
    server = Server(options.port, options.day)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
