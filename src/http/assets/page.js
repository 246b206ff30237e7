"use strict";
// Three things: run the clocks, fetch the page again when the service says that it changed, and send requests.

(() => {
  const body = document.body;
  const query = (selector) => document.querySelector(selector);

  // ---- clocks: times that run are told by their start, by the server's clock
  const offset = body.dataset.now ? Date.now() - Number(body.dataset.now) : 0;
  const two = (n) => String(n).padStart(2, "0");
  const duration = (ms) => {
    const s = Math.max(0, ms / 1000), whole = Math.floor(s);
    if (s < 10) return s.toFixed(1) + "s";
    if (s < 60) return whole + "s";
    if (s < 3600) return Math.floor(s / 60) + "m " + two(whole % 60) + "s";
    if (s < 86400) return Math.floor(s / 3600) + "h " + two(Math.floor(s / 60) % 60) + "m";
    return Math.floor(s / 86400) + "d " + (Math.floor(s / 3600) % 24) + "h";
  };
  const tick = () => {
    const now = Date.now() - offset;
    for (const clock of document.querySelectorAll("[data-since]")) {
      clock.textContent = duration(now - Number(clock.dataset.since));
    }
  };
  setInterval(tick, 1000);

  // ---- live: parts of the page are replaced by the same parts of a fresh one
  const live = query(".live");
  const say = (word) => {
    if (!live) return;
    live.textContent = word;
    live.dataset.state = word;
  };
  let fetching = false, again = false;
  const refresh = async () => {
    if (fetching) { again = true; return; }
    fetching = true;
    try {
      const response = await fetch(location.href, { headers: { accept: "text/html" } });
      if (response.ok) {
        const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
        for (const part of document.querySelectorAll("[data-part]")) {
          const newer = fresh.getElementById(part.id);
          if (newer && newer.innerHTML !== part.innerHTML) replace(part, newer);
        }
        tick();
      }
    } catch { /* the stream tells when the service is back */ }
    fetching = false;
    if (again) { again = false; setTimeout(refresh, 250); }
  };
  // What is scrolled stays scrolled, what is open stays open, what is focused stays focused.
  const replace = (part, newer) => {
    const scrolled = [...part.querySelectorAll(".scroll")].map((e) => [e.scrollLeft, e.scrollTop]);
    const at = document.activeElement;
    const focused = part.contains(at) ? (at.getAttribute("href") || at.dataset.action) : null;
    const open = [...part.querySelectorAll("details[open]")].map((e) => e.id);
    for (const id of open) newer.querySelector("#" + id)?.setAttribute("open", "");
    part.replaceChildren(...newer.childNodes);
    [...part.querySelectorAll(".scroll")].forEach((e, i) => {
      if (scrolled[i]) [e.scrollLeft, e.scrollTop] = scrolled[i];
    });
    if (focused) {
      for (const e of part.querySelectorAll("a, button")) {
        if ((e.getAttribute("href") || e.dataset.action) === focused) { e.focus({ preventScroll: true }); break; }
      }
    }
  };
  if (body.dataset.live) {
    const stream = new EventSource(body.dataset.live);
    let lost = false;
    stream.addEventListener("open", () => { say("live"); if (lost) refresh(); lost = false; });
    stream.addEventListener("change", refresh);
    stream.addEventListener("error", () => { lost = true; say("reconnecting"); });
    addEventListener("pagehide", () => stream.close());
  }

  // ---- steering: a token, once, for this tab
  const dialog = query("dialog.token");
  const button = query("[data-token]");
  const token = () => sessionStorage.getItem("yardmaster-token");
  const label = () => { if (button) button.textContent = token() ? "Forget token" : "Enter token"; };
  const ask = () => new Promise((resolve) => {
    const field = dialog.querySelector("input");
    field.value = "";
    dialog.returnValue = "cancel";
    dialog.showModal();
    dialog.addEventListener("close", () => {
      const kept = dialog.returnValue === "keep" && field.value.trim();
      if (kept) sessionStorage.setItem("yardmaster-token", field.value.trim());
      field.value = "";
      label();
      resolve(Boolean(kept));
    }, { once: true });
  });
  const toast = (text) => {
    const p = query(".toast");
    p.textContent = text;
    p.hidden = false;
    clearTimeout(toast.timer);
    toast.timer = setTimeout(() => { p.hidden = true; }, 8000);
  };
  if (button) {
    label();
    button.addEventListener("click", () => {
      if (!token()) { ask(); return; }
      sessionStorage.removeItem("yardmaster-token");
      label();
    });
  }
  const send = async (to) => {
    if (!token() && !(await ask())) return;
    try {
      const response = await fetch(to, { method: "POST", headers: { authorization: "Bearer " + token() } });
      const answer = await response.json();
      if (response.status === 401) { sessionStorage.removeItem("yardmaster-token"); label(); }
      toast(response.ok ? (answer.outcome || "Asked for; the leader has not answered yet.")
                        : answer.error.message + (answer.error.hint ? " — " + answer.error.hint : ""));
      if (response.ok && to.endsWith("/delete")) setTimeout(() => location.assign("/"), 1500);
      else refresh();
    } catch { toast("The service does not answer."); }
  };
  document.addEventListener("click", (event) => {
    const pressed = event.target.closest("[data-action]");
    if (!pressed) return;
    if (pressed.dataset.confirm && !confirm(pressed.dataset.confirm)) return;
    send(pressed.dataset.action);
  });
})();
