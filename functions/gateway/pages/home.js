// The start page. Everything it shows comes from the API; writes carry X-CSRF: 1,
// because the session's cookie alone does not prove that this page wrote the request.
// The server's data is put on the page as text, never as HTML.

const $ = (id) => document.getElementById(id);

// ---- asking the server

const patience = 20_000; // milliseconds for an answer; the gateway itself gives up earlier

// Refusal is an answer that is not a success, or none at all (status 0).
class Refusal extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `The server answered ${status}, without a reason.`);
    this.status = status;
    this.code = problem.code;
  }
}

// stale is thrown instead of an answer that is about an earlier user.
const stale = new Refusal(-1, {});

// exact keeps the digits of money: a JavaScript number would round them.
function exact(name, value, context) {
  return typeof value === "number" && (name === "balance" || name === "amount") ? (context?.source ?? String(value)) : value;
}

// ask sends a body as JSON, or a string unchanged.
async function ask(path, { method = "GET", body, key } = {}) {
  const asker = state.person;
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-CSRF"] = "1";
  if (body) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  if (body && typeof body !== "string") body = JSON.stringify(body);
  let response, text;
  try {
    response = await fetch(path, { method, headers, body, signal: AbortSignal.timeout(patience) });
    text = await response.text();
  } catch {
    response = null;
  }
  if (asker !== state.person) throw stale;
  if (response) setClock(response.headers.get("Date"));
  if (!response) throw new Refusal(0, { detail: "The server does not answer. Is it running?" });
  let answer = {};
  try {
    if (text) answer = JSON.parse(text, exact);
  } catch {
    if (response.ok) throw new Refusal(response.status, { detail: "The server's answer cannot be read." });
  }
  if (!response.ok) throw new Refusal(response.status, answer);
  return answer;
}

let ahead = 0; // milliseconds that the server's clock is ahead of this device's

// setClock follows the server's clock, to which the times of tickets refer. The header
// has whole seconds only, so it ignores small differences.
function setClock(date) {
  const difference = Date.parse(date) - Date.now();
  if (Math.abs(difference - ahead) > 2000) ahead = difference;
}

// ---- state

const state = {
  view: "loading", // then out, in or broken
  goods: new Map(), // what the demo shop sells, by stock keeping unit; empty without one
  bank: null, // what the demo bank opens accounts with; null without one
  reasons: {}, // why a part is not there or not new, by its name
  live: "connecting",
  person: 0, // counts the users that this page has shown
};

// forget drops all data of a user.
function forget() {
  Object.assign(state, {
    person: state.person + 1,
    account: null,
    entitlements: new Map(), // by stock keeping unit
    moreEntitlements: "", // cursor of the next page
    notifications: new Map(), // by id; ids sort by time
    moreNotifications: "",
    inboxRead: false,
    tickets: new Map(), // the latest of each mode
    accounts: null, // of money, once they are known
    reasons: {},
  });
  $("join").reset();
  $("send").reset();
}
forget();

function own(entitlement) {
  const known = state.entitlements.get(entitlement.stock_keeping_unit);
  // Answers may overtake each other; versions do not.
  if (!known || entitlement.version >= known.version) state.entitlements.set(entitlement.stock_keeping_unit, entitlement);
}

function take(notification) {
  const known = state.notifications.get(notification.notification_id);
  if (known) {
    notification = { ...notification, read_at: notification.read_at ?? known.read_at };
    if (known.sent_at && !notification.sent_at) Object.assign(notification, { status: known.status, sent_at: known.sent_at });
  } else if (state.inboxRead && !notification.read_at) {
    say(tell(notification));
  }
  state.notifications.set(notification.notification_id, notification);
}

// goesOn returns whether a ticket may still change.
function goesOn(ticket) {
  return ticket.status === "QUEUED" || (ticket.status === "MATCHED" && !ticket.session && !ticket.session_error);
}

// keep stores a ticket. Answers may overtake each other, but a ticket only goes from
// waiting to matched to having a game server, and a later one is younger.
function keep(ticket) {
  const known = state.tickets.get(ticket.mode);
  const progress = (t) => (t.status === "QUEUED" ? 0 : goesOn(t) ? 1 : 2);
  const old = known && (known.ticket_id === ticket.ticket_id ? progress(ticket) < progress(known) : began(ticket) < began(known));
  if (!old) state.tickets.set(ticket.mode, ticket);
}

const began = (ticket) => Date.parse(ticket.created_at);

// keepAll stores all tickets of a list. Others that were known before the request
// (before) no longer exist.
function keepAll(tickets, before) {
  for (const { mode, ticket_id } of before) {
    const gone = state.tickets.get(mode)?.ticket_id === ticket_id && !tickets.some((t) => t.ticket_id === ticket_id);
    if (gone) state.tickets.delete(mode);
  }
  tickets.forEach(keep);
}

// ---- loading

let loading = null;
let loadAgain = false;

// refresh reloads everything: one load at a time, and one more if something happened
// meanwhile.
function refresh() {
  if (loading) {
    loadAgain = true;
    return loading;
  }
  loading = load().finally(() => {
    loading = null;
    if (loadAgain) {
      loadAgain = false;
      refresh();
    }
  });
  return loading;
}

async function load() {
  try {
    const before = [...state.tickets.values()];
    const overview = await ask("/v1/me/overview");
    const user = overview.account?.user_id;
    if (user !== state.account?.user_id) {
      unfollow(); // it may be another person's
      forget();
    }
    state.view = "in";
    state.account = overview.account;
    state.reasons = Object.fromEntries(Object.entries(overview.errors).map(([part, why]) => [part, why.detail]));
    if (state.entitlements.size === 0) state.moreEntitlements = overview.entitlements_next_cursor ?? "";
    (overview.entitlements ?? []).forEach(own);
    if (overview.matchmaking) keepAll(overview.matchmaking.tickets, before);
    if (!retry) follow(); // what refused it is not asked again at once
    render();
    await Promise.all([loadAccounts(), loadInbox()]);
  } catch (refusal) {
    fail(refusal);
  }
  render();
}

async function loadAccounts() {
  try {
    state.accounts = (await ask("/v1/accounts?limit=100")).accounts;
  } catch (refusal) {
    if (refusal === stale || refusal.status === 401) throw refusal;
    state.reasons.money = refusal.message;
  }
}

async function loadInbox() {
  try {
    const page = await ask("/v1/me/notifications?limit=20");
    if (!page.notifications.some((n) => state.notifications.has(n.notification_id))) {
      state.notifications.clear(); // or there would be a gap between them and these
      state.moreNotifications = page.next_cursor ?? "";
    }
    page.notifications.forEach(take);
    state.inboxRead = true;
  } catch (refusal) {
    if (refusal === stale || refusal.status === 401) throw refusal;
    state.reasons.notifications = refusal.message;
  }
}

function fail(refusal) {
  if (refusal === stale) {
    loadAgain ||= state.view !== "loading"; // on the way back, pageshow begins anew
  } else if (refusal.status === 401) {
    ended();
  } else if (state.view === "in") {
    state.reasons.page = refusal.message;
  } else {
    state.view = "broken";
    state.reasons.page = refusal.message;
  }
}

// ended shows that nobody is signed in (any more).
function ended() {
  unfollow();
  forget();
  say("");
  state.view = "out";
  render();
}

// In production there is no demo shop, and nothing of it is shown.
async function loadShop() {
  const [shop, bank] = await Promise.all(["/demo/shop", "/demo/bank"].map(async (path) => {
    const response = await fetch(path).catch(() => null);
    return response?.ok ? response.json() : null;
  }));
  for (const item of shop?.items ?? []) state.goods.set(item.stock_keeping_unit, item);
  state.bank = bank;
  render();
}

// ---- news, as it happens

const longestWait = 30_000;
let stream = null;
let followed = ""; // the id of the ticket that the stream follows, too
let lastEvent = "";
let tries = 0;
let retry = 0;

// toFollow is the id of the ticket to follow: a stream follows one.
function toFollow() {
  const open = [...state.tickets.values()].filter(goesOn).sort((a, b) => began(b) - began(a));
  return (open.find((t) => t.ticket_id === followed) ?? open[0])?.ticket_id ?? "";
}

// follow opens the stream of notifications, unless it is open and follows the right
// ticket. Hidden tabs have none: browsers open at most six connections to a server, for
// all tabs together.
function follow() {
  const ticket = toFollow();
  if (ticket && ticket !== followed) hangUp();
  if (stream || state.view !== "in" || document.hidden) return;
  clearTimeout(retry);
  retry = 0;
  followed = ticket;
  state.live = tries ? "reconnecting" : "connecting";
  const query = new URLSearchParams();
  if (lastEvent) query.set("last_event_id", lastEvent);
  if (ticket) query.set("ticket_id", ticket);
  stream = new EventSource(`/v1/me/notifications/stream?${query}`);
  stream.addEventListener("open", () => {
    state.live = "connected";
    tries = 0;
    render();
    refresh(); // what happened before it was open
  });
  stream.addEventListener("notification", (event) => {
    lastEvent = event.lastEventId;
    take(JSON.parse(event.data));
    render();
    refresh(); // something has changed
  });
  stream.addEventListener("ticket", (event) => {
    lastEvent = event.lastEventId;
    keep(JSON.parse(event.data));
    follow(); // another one, when this one has ended
    render();
  });
  stream.addEventListener("error", () => {
    state.live = "reconnecting";
    // The browser does not reconnect a refused stream; and after the end of a ticket it
    // would reconnect with that ticket, which is soon gone.
    if (stream.readyState === EventSource.CLOSED || toFollow() !== followed) {
      hangUp();
      retry = setTimeout(() => {
        retry = 0;
        follow();
      }, Math.min(longestWait, 1000 * 2 ** tries++) * (0.5 + Math.random()));
    }
    render();
    refresh(); // has the session ended?
  });
}

function hangUp() {
  stream?.close();
  stream = null;
}

function unfollow() {
  clearTimeout(retry);
  hangUp();
  retry = 0;
  followed = "";
  lastEvent = "";
  tries = 0;
  state.live = "connecting";
}

// Waiting times grow without events. Tickets that no stream follows are polled.
let ticks = 0;
setInterval(() => {
  const open = [...state.tickets.values()].filter(goesOn);
  if (document.hidden || open.length === 0) return;
  sections.opponent();
  if (++ticks % 5 === 0 && (state.live !== "connected" || open.some((t) => t.ticket_id !== followed))) refresh();
}, 1000);

// tabs of one browser share its session.
const tabs = new BroadcastChannel("session");
tabs.addEventListener("message", refresh);
window.addEventListener("focus", look);
// The browser may keep the page for the back button, so no user's data may stay in it.
window.addEventListener("pagehide", () => {
  unfollow();
  forget();
  state.view = "loading";
  render();
});
window.addEventListener("pageshow", (event) => {
  if (event.persisted) refresh();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    hangUp();
  } else {
    look();
  }
});

// look refreshes old data and reconnects at once. A tab without a signed-in user notices
// a sign-in.
function look() {
  if (retry) follow();
  if (state.view !== "out") refresh();
}

// ---- showing

function nameOf(sku) {
  return state.goods.get(sku)?.name ?? sku;
}

// tell describes a notification in words.
function tell({ event_type, payload }) {
  const what = nameOf(payload?.stock_keeping_unit);
  switch (event_type) {
    case "EntitlementGranted":
      return `${what} is yours`;
    case "EntitlementRevoked":
      return `${what} is no longer yours`;
    case "MatchMade":
      return `${titled(payload.mode)}: you have an opponent`;
    case "TransferSettled":
      return moved(payload);
  }
  return event_type;
}

// moved describes a transfer in words.
function moved({ kind, direction, amount, currency, from_account_id: from, to_account_id: to }) {
  const money = `${amount.replace(/\.?0+$/, "")} ${currency}`;
  if (kind === "OPENING") return `Your account ${to} was opened with ${money}`;
  switch (direction) {
    case "SENT":
      return `${money} went to account ${to}`;
    case "RECEIVED":
      return `${money} came from account ${from}`;
  }
  return `${money} moved from your account ${from} to ${to}`;
}

function titled(mode) {
  return mode.slice(0, 1).toUpperCase() + mode.slice(1);
}

// seconds formats a duration in milliseconds.
function seconds(milliseconds) {
  const whole = Math.max(0, Math.round(milliseconds / 1000));
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

// stateOf describes a ticket's state in a sentence.
function stateOf(ticket) {
  switch (ticket.status) {
    case "QUEUED":
      return ticket.reason.detail;
    case "MATCHED":
      if (ticket.session) return "You have an opponent.";
      if (!ticket.session_error) return "You have an opponent; finding a game server…";
      return "You have an opponent, but there was no game server for you. Join again.";
    case "EXPIRED":
      return "Nobody was found in time.";
    case "CANCELLED":
      return "You left the queue.";
  }
  return "";
}

// serverOf formats a session's address, with its port or ports.
function serverOf({ address, ports }) {
  const host = address.includes(":") ? `[${address}]` : address; // IPv6
  if (ports.length === 0) return address;
  return ports.map((p) => `${host}:${p.port}` + (ports.length > 1 ? ` (${p.name})` : "")).join(", ");
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function show(element, visible) {
  element.hidden = !visible;
}

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const calendar = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

// when formats a time, without the date if that is today.
function when(iso) {
  const then = new Date(iso);
  return (then.toDateString() === new Date().toDateString() ? clock : calendar).format(then);
}

// fill puts values into the fields of a row with their names.
function fill(row, values) {
  for (const field of row.querySelectorAll("[data-field]")) {
    const value = values[field.dataset.field];
    if (field instanceof HTMLTimeElement) {
      field.dateTime = value;
      write(field, when(value));
    } else {
      write(field, String(value));
    }
  }
}

// list makes the rows of parent show items, by key and in their order. Unchanged rows
// stay in place, so that they keep the focus.
function list(parent, items, key, make, update) {
  const old = new Map([...parent.children].map((row) => [row.dataset.key, row]));
  const rows = items.map((item) => {
    const row = old.get(key(item)) ?? make(key(item));
    old.delete(key(item));
    row.dataset.key = key(item);
    update(row, item);
    return row;
  });
  old.forEach((row) => row.remove());
  rows.forEach((row, i) => {
    if (parent.children[i] !== row) parent.insertBefore(row, parent.children[i] ?? null);
  });
}

// fromTemplate returns a factory of rows whose buttons run the actions with their names.
function fromTemplate(id, actions) {
  return (key) => {
    const row = $(id).content.firstElementChild.cloneNode(true);
    for (const button of row.querySelectorAll("button"))
      button.addEventListener("click", () => act(button, () => actions[button.dataset.action](key)));
    return row;
  };
}

const byKey = (text) => text;

const sections = {
  views() {
    for (const [id, view] of [["loading", "loading"], ["signed-out", "out"], ["broken", "broken"], ["signed-in", "in"], ["sign-out", "in"]])
      show($(id), state.view === view);
    write($("broken-reason"), state.reasons.page ?? "");
    show($("hint"), state.goods.size > 0);
    for (const part of ["page", "account", "matchmaking", "money", "entitlements", "notifications"]) {
      const reason = state.view === "in" ? (state.reasons[part] ?? "") : "";
      write($(`reason-${part}`), reason);
      show($(`reason-${part}`), reason !== "");
    }
  },

  account() {
    const account = state.account;
    show($("account-fields"), account !== null);
    write($("user-id"), account?.user_id ?? "");
    const item = () => document.createElement("li");
    list($("roles"), account?.roles ?? [], byKey, item, write);
    list($("identities"), account?.identities ?? [], (i) => `${i.issuer} ${i.subject}`, () => {
      const row = item();
      row.append(document.createElement("code"), document.createElement("span"));
      return row;
    }, (row, i) => {
      write(row.firstChild, i.subject);
      write(row.lastChild, ` at ${i.issuer}`);
    });
  },

  opponent() {
    const mode = $("mode").value;
    show($("rank"), mode === "rank");
    $("rank").disabled = mode !== "rank";
    settle($("join-queue"), state.tickets.get(mode)?.status === "QUEUED");
    const items = [...state.tickets.values()].sort((a, b) => began(b) - began(a));
    list($("tickets"), items, (t) => t.mode, fromTemplate("item-of-tickets", { leave, again }), (row, t) => {
      const waits = t.status === "QUEUED";
      fill(row, {
        mode: titled(t.mode), status: t.status, state: stateOf(t),
        attributes: Object.entries(t.attributes).map(([name, value]) => `${name} ${value}`).join(", "),
        position: t.position ?? "",
        waited: waits ? seconds(Date.now() + ahead - began(t)) : "",
        estimate: t.estimated_wait_ms == null ? "" : `about ${seconds(Math.max(1000, t.estimated_wait_ms))}`,
        peers: (t.peer_user_ids ?? []).join(", "),
        server: t.session ? serverOf(t.session) : "",
        match_id: t.match_id ?? "",
      });
      for (const fact of row.querySelectorAll(".facts > div")) show(fact, fact.lastElementChild.textContent !== "");
      Object.assign(row.dataset, { ticket: t.ticket_id, status: t.status });
      for (const [name, visible] of [["leave", waits], ["again", !waits && !t.session && !goesOn(t)]]) {
        const button = row.querySelector(`[data-action="${name}"]`);
        show(button, visible);
        settle(button);
      }
    });
  },

  shop() {
    show($("shop"), state.goods.size > 0);
    list($("goods"), [...state.goods.values()], (i) => i.stock_keeping_unit, fromTemplate("item-of-goods", { buy }), (row, item) => {
      const owned = state.entitlements.get(item.stock_keeping_unit)?.status === "ACTIVE";
      fill(row, { ...item, action: owned ? "Owned" : "Buy" });
      settle(row.querySelector("button"), owned);
    });
  },

  money() {
    const accounts = state.accounts ?? [];
    const none = state.accounts?.length === 0;
    show($("no-accounts"), none && !state.bank);
    show($("open-account"), none && state.bank !== null);
    write($("open-with"), state.bank ? `${state.bank.balance} ${state.bank.currency}` : "");
    show($("send"), accounts.length > 0);
    list($("accounts"), accounts, (a) => String(a.accountId), fromTemplate("item-of-accounts", {}), fill);
    list($("from"), accounts, (a) => String(a.accountId), (id) => new Option(id, id), () => {});
  },

  entitlements() {
    const items = [...state.entitlements.values()].sort((a, b) => (a.stock_keeping_unit < b.stock_keeping_unit ? -1 : 1));
    show($("no-entitlements"), items.length === 0 && !state.reasons.entitlements);
    list($("owned"), items, (e) => e.stock_keeping_unit, fromTemplate("item-of-owned", { refund }), (row, e) => {
      const name = nameOf(e.stock_keeping_unit);
      fill(row, { ...e, name, stock_keeping_unit: name === e.stock_keeping_unit ? "" : e.stock_keeping_unit });
      row.dataset.status = e.status;
      const button = row.querySelector("button");
      show(button, e.status === "ACTIVE" && state.goods.has(e.stock_keeping_unit));
      settle(button);
    });
    show($("more-entitlements"), state.moreEntitlements !== "");
  },

  notifications() {
    const items = [...state.notifications.values()].sort((a, b) => (a.notification_id > b.notification_id ? -1 : 1));
    const unread = items.filter((n) => !n.read_at).length;
    document.title = (unread ? `(${unread}) ` : "") + "MiniServerSystem";
    show($("no-notifications"), state.inboxRead && items.length === 0);
    list($("inbox"), items, (n) => n.notification_id, fromTemplate("item-of-inbox", { read }), (row, n) => {
      fill(row, {
        ...n, text: tell(n), unread: n.read_at ? "" : "Unread: ",
        status: { SENT: "", FAILED: "could not be sent" }[n.status] ?? "on its way",
      });
      row.classList.toggle("unread", !n.read_at);
      const button = row.querySelector("button");
      show(button, !n.read_at);
      settle(button);
    });
    show($("more-notifications"), state.moreNotifications !== "");
    write($("live"), { connected: "Live", connecting: "Connecting…", reconnecting: "Reconnecting…" }[state.live]);
    $("live").dataset.live = state.live;
  },
};

// render updates the page. If the focused element is gone, its nearest remaining ancestor
// gets the focus, so that Tab continues from there.
function render() {
  const around = [];
  for (let e = document.activeElement; e && e !== document.body; e = e.parentElement) around.push(e);
  Object.values(sections).forEach((update) => update());
  const there = (e) => e.isConnected && e.getClientRects().length > 0;
  if (around.length === 0 || there(around[0])) return;
  const next = [...around.filter((e) => e.hasAttribute("tabindex")), $("sign-in"), $("broken")].find(there);
  next?.focus();
}

let silence;

// say shows a message: news for a few seconds, errors until they are closed.
function say(text, trouble = false) {
  clearTimeout(silence);
  $("message").className = trouble ? "trouble" : text && "news";
  write($("message-text"), text);
  show($("message-close"), trouble);
  if (text && !trouble) silence = setTimeout(() => say(""), 6000);
}

// ---- acting

// act runs a button's action, one at a time. It does not disable the button, which would
// lose the focus.
async function act(button, action) {
  if (button.ariaDisabled === "true") return;
  button.dataset.busy = "true";
  settle(button);
  try {
    await action();
  } catch (refusal) {
    if (refusal.status === 401) ended();
    else if (refusal !== stale) say(refusal.message, true);
  }
  delete button.dataset.busy;
  settle(button);
  render();
}

function settle(button, off = false) {
  const disabled = off || button.dataset.busy === "true";
  if (disabled !== (button.ariaDisabled === "true")) button.ariaDisabled = disabled ? "true" : null;
}

async function order(path, sku) {
  try {
    own(await ask(path, { method: "POST", body: { stock_keeping_unit: sku } }));
  } catch (refusal) {
    if (refusal !== stale && refusal.status !== 401) refresh(); // it may have been done all the same
    throw refusal;
  }
}

const buy = (sku) => order("/demo/shop/purchases", sku);
const refund = (sku) => order("/demo/shop/refunds", sku);

const ticketPath = (id) => `/v1/matchmaking/tickets/${encodeURIComponent(id)}`;

async function join(mode, attributes) {
  // Not crypto.randomUUID, which exists over https and on localhost only.
  const key = crypto.getRandomValues(new Uint8Array(16)).join("-");
  try {
    const { ticket_id } = await ask(`/v1/matchmaking/queues/${encodeURIComponent(mode)}/tickets`, {
      method: "POST", body: { party_size: 1, attributes, idempotency_key: key },
    });
    keep(await ask(ticketPath(ticket_id)));
  } catch (refusal) {
    if (refusal.code !== "ticket_queued") {
      if (refusal !== stale && refusal.status !== 401) refresh(); // it may have been done all the same
      throw refusal;
    }
    // Another tab or device has joined; its ticket is shown instead.
    (await ask("/v1/matchmaking/tickets")).tickets.forEach(keep);
  }
  follow();
}

function joinQueue() {
  const attributes = {};
  if ($("mode").value === "rank") {
    attributes.skill = $("skill").valueAsNumber;
    if ($("region").value) attributes.region = $("region").value;
  }
  return join($("mode").value, attributes);
}

const again = (mode) => join(mode, state.tickets.get(mode).attributes);

async function leave(mode) {
  const path = ticketPath(state.tickets.get(mode).ticket_id);
  try {
    keep(await ask(path, { method: "DELETE" }));
  } catch (refusal) {
    if (refusal.code !== "ticket_matched") {
      if (refusal !== stale && refusal.status !== 401) refresh();
      throw refusal;
    }
    keep(await ask(path)); // a pass was faster: there is an opponent
  }
}

async function openAccount() {
  await ask("/demo/bank", { method: "POST" });
  await loadAccounts();
}

const refused = {
  INSUFFICIENT_BALANCE: "There is not that much in the account. Nothing was sent.",
  BALANCE_LIMIT: "The other account cannot hold that much. Nothing was sent.",
};

// Transfers with an unknown outcome, and their keys: a retry uses the same key, so that it
// counts once. They survive a reload of the page.
const keyOf = (body) => sessionStorage.getItem(`transfer ${body}`);
const keepKey = (body, key) => sessionStorage.setItem(`transfer ${body}`, key);
const forgetKey = (body) => sessionStorage.removeItem(`transfer ${body}`);

// sendMoney gets a key and sends with it until the outcome is known.
async function sendMoney() {
  const amount = $("amount").value.replace(",", ".");
  const body = `{"fromAccountId":${$("from").value},"toAccountId":${$("to").value},"amount":${amount}}`;
  let key = keyOf(body);
  if (!key) {
    key = (await ask("/v1/idempotency-keys", { method: "POST" })).idempotencyKey;
    keepKey(body, key);
  }
  try {
    await sendWith(key, body);
  } catch (refusal) {
    if (refusal !== stale && refusal.status !== 401) await loadAccounts().catch(() => {}); // it may have been done all the same
    throw refusal;
  }
  $("to").value = $("amount").value = "";
  await loadAccounts();
}

async function sendWith(key, body) {
  const tries = 5;
  for (let n = 1; ; n++) {
    let answer;
    try {
      answer = await ask("/v1/transfers", { method: "POST", body, key });
    } catch (refusal) {
      // These codes mean that the key moved no money; others may come after it did.
      if ([400, 404, 409, 422].includes(refusal.status)) forgetKey(body);
      if (refusal === stale || (refusal.status > 0 && refusal.status < 500)) throw refusal;
    }
    if (answer?.status === "SUCCEEDED" || answer?.status === "FAILED") forgetKey(body);
    if (answer?.status === "SUCCEEDED") return;
    if (answer?.status === "FAILED") throw new Refusal(200, { detail: refused[answer.errorCode] ?? "Nothing was sent. Send it again." });
    if (n === tries) throw new Refusal(202, { detail: "The outcome is not known yet. Send the same again: it counts once." });
    await new Promise((wake) => setTimeout(wake, 500 * n));
  }
}

async function read(id) {
  take(await ask(`/v1/me/notifications/${encodeURIComponent(id)}/read`, { method: "POST" }));
}

async function moreEntitlements() {
  const page = await ask(`/v1/users/${encodeURIComponent(state.account.user_id)}/entitlements?cursor=${encodeURIComponent(state.moreEntitlements)}`);
  page.entitlements.forEach(own);
  state.moreEntitlements = page.next_cursor ?? "";
}

async function moreNotifications() {
  const page = await ask(`/v1/me/notifications?limit=20&cursor=${encodeURIComponent(state.moreNotifications)}`);
  state.inboxRead = false; // these are no news
  page.notifications.forEach(take);
  state.inboxRead = true;
  state.moreNotifications = page.next_cursor ?? "";
}

async function signOut() {
  unfollow();
  try {
    await ask("/logout", { method: "POST" });
  } catch (refusal) {
    follow(); // the session still exists
    throw refusal;
  }
  ended();
  tabs.postMessage("signed out");
}

const linkAgain = "link again";

async function linkIdentity() {
  try {
    const answer = await ask("/login/link?return_to=/", { method: "POST" });
    location.assign(answer.location);
  } catch (refusal) {
    if (refusal.code !== "sign_in_stale") throw refusal;
    sessionStorage.setItem(linkAgain, "true");
    location.assign("/login?again=true&return_to=/");
  }
}

for (const [id, action] of [
  ["sign-out", signOut], ["link-identity", linkIdentity], ["try-again", refresh], ["open-account", openAccount],
  ["more-entitlements", moreEntitlements], ["more-notifications", moreNotifications],
]) {
  const button = $(id);
  button.addEventListener("click", () => act(button, action));
}
$("join").addEventListener("submit", (event) => {
  event.preventDefault();
  act($("join-queue"), joinQueue);
});
$("send").addEventListener("submit", (event) => {
  event.preventDefault();
  act($("send-money"), sendMoney);
});
$("mode").addEventListener("change", render);
$("message-close").addEventListener("click", () => {
  say("");
  render();
});

// ---- begin

render();
loadShop();
await refresh();
if (state.view === "in") {
  tabs.postMessage("signed in"); // the others may have got another message meanwhile
  if (sessionStorage.getItem(linkAgain)) {
    sessionStorage.removeItem(linkAgain);
    say("You have signed in again. Now link the other identity.");
    $("link-identity").focus();
  }
}
