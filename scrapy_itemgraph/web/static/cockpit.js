// What the cockpit's pages can do beyond links and forms. Each page works without it.
"use strict";
(() => {
  const root = document.documentElement;
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Light and dark.
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const toggle = one("#theme");
  const named = () => {
    if (toggle) toggle.textContent = isDark() ? "☀ Light" : "☾ Dark";
  };
  toggle?.removeAttribute("hidden");
  toggle?.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("itemgraph-theme", root.dataset.theme);
    } catch { /* for this page alone */ }
    named();
  });
  system.addEventListener("change", named);
  named();

  // Where the style cannot show what is folded, filters are opened where there is room for them.
  if (!CSS.supports("selector(::details-content)") && matchMedia("(min-width: 761px)").matches)
    for (const filters of all("details.filters")) filters.open = true;

  one(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  // Times grow older while a page is read.
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const period = (seconds) => {
    let rest = Math.max(0, Math.round(seconds));
    const first = Math.max(0, units.findIndex(([, size]) => rest >= size));
    const parts = [];
    for (const [unit, size] of rest ? units.slice(first, first + 2) : []) {
      if (rest >= size) parts.push(`${Math.floor(rest / size)}${unit}`);
      rest %= size;
    }
    return parts.join(" ") || "0s";
  };
  const offset = Date.now() - Date.parse(document.body.dataset.now || new Date().toISOString());
  const ageing = () => {
    for (const time of all("time[data-relative]")) {
      const ago = (Date.now() - offset - Date.parse(time.dateTime)) / 1000;
      time.textContent = ago < 0 ? `in ${period(-ago)}` : `${period(ago)} ago`;
    }
  };
  setInterval(ageing, 10000);

  // What is loaded when it is opened.
  document.addEventListener("toggle", async (event) => {
    const details = event.target;
    const box = details.open && one("[data-load]", details);
    if (!box) return;
    const url = box.dataset.load;
    delete box.dataset.load;
    box.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(url, { headers: { "X-Part": "1" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const part = one("[data-part]", page);
      if (!answer.ok || !part) throw new Error(one("main p", page)?.textContent || `status ${answer.status}`);
      box.replaceChildren(...part.childNodes);
    } catch (error) {
      box.dataset.load = url;
      box.textContent = `This could not be loaded: ${error.message}. Close and open it again.`;
    }
    box.removeAttribute("aria-busy");
  }, true);

  // What moves: parts of the page, sent by the server as they change.
  const lost = one("#lost");
  const say = (text) => {
    if (!lost) return;
    lost.hidden = !text;
    one("p", lost).textContent = text;
  };
  const isRead = (part) => {
    const selection = getSelection();
    return part.contains(document.activeElement)
      || (!selection.isCollapsed && selection.containsNode(part, true));
  };
  const live = window.EventSource && document.body.dataset.live;
  const shown = {};
  let source;
  const listen = () => {
    if (!live) return;
    source?.close();
    // What the server saw before this page was made is older than what stands here.
    source = new EventSource(`${live}?since=${encodeURIComponent(document.body.dataset.now)}`);
    source.addEventListener("parts", (event) => {
      say("");
      const seen = JSON.parse(event.data);
      for (const [name, html] of Object.entries(seen.parts)) {
        const part = one(`[data-part-live="${name}"]`);
        if (part && shown[name] !== html && !isRead(part)) part.innerHTML = shown[name] = html;
      }
      for (const [name, stamp] of Object.entries(seen.stamps)) {
        const note = one(`[data-news="${name}"]`);
        if (note && note.dataset.stamp !== String(stamp)) note.hidden = false;
      }
    });
    source.addEventListener("problem", (event) => {
      say(`The database is away: ${JSON.parse(event.data).detail} What stands here is as it was; it goes on by itself.`);
    });
    source.onerror = () => {
      say("The cockpit does not answer. What stands here is as it was; it goes on by itself when the cockpit is back.");
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, 5000);
    };
  };
  // A hidden tab asks for nothing.
  const look = () => {
    if (document.hidden) source?.close();
    else if (!source || source.readyState === EventSource.CLOSED) listen();
  };
  document.addEventListener("visibilitychange", look);
  addEventListener("pageshow", look);
  look();

  // The log of a job, as it is written: what is new of it every two seconds, until it is over.
  const log = one("[data-log]");
  const follow = async () => {
    let isOver = false;
    if (!document.hidden) {
      try {
        const answer = await fetch(`${log.dataset.log}?after=${log.dataset.next}`);
        const part = await answer.json();
        if (!answer.ok) throw new Error(part.detail);
        const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
        if (part.text) one("bdi", log).append(part.text);
        log.dataset.next = part.next;
        if (isAtEnd) log.scrollTop = log.scrollHeight;
        isOver = part.is_over;
        say("");
      } catch {
        say("The log cannot be read. What stands here is as it was; it goes on by itself.");
      }
    }
    if (isOver) location.reload(); // how it ended stands on the page
    else setTimeout(follow, 2000);
  };
  if (log) {
    log.scrollTop = log.scrollHeight;
    setTimeout(follow, 500);
  }

  // A box that ticks all others of a name.
  for (const label of all("[data-scripted]")) label.hidden = false;
  document.addEventListener("change", (event) => {
    const name = event.target.dataset.checkAll;
    if (!name) return;
    for (const box of all(`input[name="${name}"]`)) box.checked = event.target.checked;
  });

  // A form changes its own part of the page, so that what is open beside it stays open.
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (form.method === "post") source?.close(); // what we do ourselves is no news
    const selector = form.dataset.swap;
    if (!selector || event.defaultPrevented) return;
    event.preventDefault();
    const button = event.submitter;
    if (button?.hasAttribute("aria-busy")) return;
    button?.setAttribute("aria-busy", "true");
    const body = new URLSearchParams(new FormData(form, button));
    try {
      const answer = await fetch(form.action, { method: "POST", body });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const messages = one("#messages", page);
      if (!messages) throw new Error(`status ${answer.status}`);
      if (!answer.redirected && !answer.ok) {
        one("#messages").replaceChildren(...messages.childNodes, ...(one("main", page)?.childNodes || []));
      } else {
        for (const id of selector.split(" ")) {
          const fresh = page.getElementById(id);
          const old = document.getElementById(id);
          if (old && fresh) old.replaceWith(fresh);
          else old?.remove();
        }
        one("#messages").replaceChildren(...messages.childNodes);
        for (const note of all("[data-news]")) {
          const fresh = one(`[data-news="${note.dataset.news}"]`, page);
          if (fresh) note.dataset.stamp = fresh.dataset.stamp;
        }
        document.body.dataset.now = page.body.dataset.now;
      }
      button?.removeAttribute("aria-busy");
      listen();
      one("#messages").scrollIntoView({ block: "nearest" });
    } catch {
      form.removeAttribute("data-swap");
      form.requestSubmit(button); // the browser's own way says what is wrong
    }
  });

  // Keys.
  const help = one("#keys");
  one("#help")?.removeAttribute("hidden");
  one("#help")?.addEventListener("click", () => help.showModal());
  let went = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.("input, select, textarea, [contenteditable]")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (help?.open) return;
    if (event.key === "?") {
      event.preventDefault();
      help?.showModal();
    } else if (event.key === "/") {
      const box = one("#find");
      if (box) { event.preventDefault(); box.focus(); box.select(); }
    } else if (event.key === "g") {
      went = Date.now();
    } else if (Date.now() - went < 1500) {
      went = 0;
      const link = all("[data-key]").find((a) => a.dataset.key === event.key);
      if (link) { event.preventDefault(); link.click(); }
    }
  });
})();
