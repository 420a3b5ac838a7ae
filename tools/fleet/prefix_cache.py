"""The prefix cache of a simulated worker: pages of tokens in bounded memory, as Weft's.

A node is a page of tokens after its parent's. Only a last page may be partly filled. A prompt finds
the longest beginning that is there, to the token. The least recently used leaf goes first, but none
that a request uses. Whoever watches is told of whole pages. No clock and no network here.
"""

import heapq
import itertools


class Node:
    __slots__ = ("parent", "tokens", "key", "children", "used", "users", "serial")

    def __init__(self, parent, tokens, key, serial):
        self.parent, self.tokens, self.key, self.serial = parent, tokens, key, serial
        self.children = {}
        self.used, self.users = 0, 0


def common(a, b):
    """How many tokens two sequences begin alike with."""
    alike, unlike = 0, min(len(a), len(b)) + 1  # lengths of beginnings
    while unlike - alike > 1:
        middle = (alike + unlike) // 2
        if a[alike:middle] == b[alike:middle]:
            alike = middle
        else:
            unlike = middle
    return alike


class PrefixCache:
    """`max_pages` counts those of running requests, too: they are in Hold.pages."""

    def __init__(self, page_tokens, max_pages):
        self.page_tokens, self.max_pages = page_tokens, max_pages
        self.root = Node(None, (), 0, 0)
        self.n_nodes = 0
        self.n_private = 0   # pages of requests that no node has
        self.n_in_use = 0    # nodes that requests use
        self.clock = itertools.count(1)
        self.serials = itertools.count(1)
        self.leaves = []     # heap of (used, serial, node); entries may be out of date
        self.told = None     # what a watcher is to be told, once there is one
        self.evicted = 0

    @property
    def n_pages(self):
        return self.n_nodes + self.n_private

    def usage(self):
        """The share of the memory that only requests hold."""
        return min(1.0, (self.n_in_use + self.n_private) / self.max_pages)

    # --- finding --------------------------------------------------------------------------

    def path(self, tokens):
        """The nodes of the whole pages at the beginning, from the first."""
        node, nodes, size = self.root, [], self.page_tokens
        for at in range(0, len(tokens) - size + 1, size):
            node = node.children.get(tuple(tokens[at:at + size]))
            if node is None or len(node.tokens) < size:
                break
            nodes.append(node)
        return nodes

    def match(self, tokens):
        """The nodes whose tokens these begin with, and how many tokens they have in common: of a
        last page perhaps only some."""
        nodes = self.path(tokens)
        n = len(nodes) * self.page_tokens
        rest = tuple(tokens[n:n + self.page_tokens])
        last = nodes[-1] if nodes else self.root
        best = max(last.children.values(), key=lambda child: common(child.tokens, rest),
                   default=None)
        alike = common(best.tokens, rest) if best is not None and rest else 0
        if alike:
            nodes.append(best)
        return nodes, n + alike

    # --- changing -------------------------------------------------------------------------

    def touch(self, nodes):
        """From the last to the first, so that a parent was never used before its child."""
        now = next(self.clock)
        for node in nodes:
            node.used = now
        if nodes and not nodes[-1].children:
            self.push(nodes[-1])

    def push(self, node):
        heapq.heappush(self.leaves, (node.used, node.serial, node))

    def add(self, parent, tokens):
        """The node of one page after `parent`. Its page is no longer the request's own."""
        tokens = tuple(tokens)
        node = parent.children.get(tokens)
        if node is None:
            for other in list(parent.children.values()):
                short = min(len(other.tokens), len(tokens))
                if other.tokens[:short] != tokens[:short]:
                    continue
                if len(other.tokens) > len(tokens):
                    return other  # has this one's tokens and more
                if not other.users:
                    self.remove(other)
            whole = len(tokens) == self.page_tokens
            key = hash((parent.key, tokens)) & 0x7FFFFFFFFFFFFFFF if whole else 0
            node = Node(parent, tokens, key, next(self.serials))
            parent.children[tokens] = node
            self.n_nodes += 1
            if whole and self.told is not None:
                self.told.append((True, node))
        node.used = next(self.clock)
        self.push(node)
        return node

    def remove(self, node):
        del node.parent.children[node.tokens]
        node.serial = 0
        self.n_nodes -= 1
        if node.key and self.told is not None:
            self.told.append((False, node))
        if not node.parent.children and node.parent is not self.root:
            self.push(node.parent)

    def use(self, node):
        node.users += 1
        self.n_in_use += node.users == 1

    def unuse(self, node):
        node.users -= 1
        self.n_in_use -= node.users == 0
        if not node.users and not node.children:
            self.push(node)

    def make_room(self, pages):
        """Evicts until so many pages are free. False if requests use too many."""
        while self.n_pages + pages > self.max_pages:
            if not self.leaves:
                return False
            used, serial, node = heapq.heappop(self.leaves)
            if node.serial == serial and node.used == used and not node.children and not node.users:
                self.evicted += 1
                self.remove(node)
        return True

    def whole_pages(self):
        """All nodes of whole pages, each after its parent."""
        nodes = [self.root]
        for node in nodes:
            nodes += [child for child in node.children.values() if child.key]
        return nodes[1:]


class Hold:
    """The pages of one request: nodes of the cache, and pages of its own."""

    def __init__(self, cache):
        self.cache = cache
        self.nodes = []      # its whole pages, in order
        self.private = 0
        self.computed = 0

    def reuse(self, tokens):
        """Takes what the cache has of the tokens but the last. True if that was more."""
        cache = self.cache
        nodes, n = cache.match(tokens[:-1])
        cache.touch(nodes)
        if n <= self.computed:
            return False
        whole = n // cache.page_tokens
        needs = 1 if n % cache.page_tokens and not self.private else 0
        for node in nodes[len(self.nodes):whole]:
            cache.use(node)
        self.nodes = nodes[:whole]
        # The part of a page that it shares is copied.
        if needs and cache.make_room(1):
            self.private += 1
            cache.n_private += 1
            needs = 0
        self.computed = n if not needs else whole * cache.page_tokens
        return True

    def room_for(self, rows):
        """Whether the pages for that many more tokens are there, evicting others' if need be."""
        cache = self.cache
        wanted = -(-(self.computed + rows) // cache.page_tokens) - len(self.nodes)
        more = max(0, wanted - self.private)
        if more and not cache.make_room(more):
            return False
        self.private += more
        cache.n_private += more
        return True

    def commit(self, tokens, rows):
        """So many more are computed: whole pages become the cache's."""
        cache, size = self.cache, self.cache.page_tokens
        self.computed += rows
        for at in range(len(self.nodes) * size, self.computed - size + 1, size):
            parent = self.nodes[-1] if self.nodes else cache.root
            node = cache.add(parent, tokens[at:at + size])
            cache.use(node)
            self.nodes.append(node)
            self.private -= 1
            cache.n_private -= 1

    def release(self, tokens, keep=True):
        """The request has ended; what it computed stays in the cache."""
        cache = self.cache
        cache.n_private -= self.private
        self.private = 0
        at = len(self.nodes) * cache.page_tokens
        tail = tokens[at:self.computed]
        cache.touch(self.nodes)
        if keep and tail and cache.make_room(1):
            node = cache.add(self.nodes[-1] if self.nodes else cache.root, tail)
            cache.touch([*self.nodes, node])
        for node in reversed(self.nodes):
            cache.unuse(node)
        self.nodes, self.computed = [], 0
