// The frame around every page: who is there, where one can go, light or dark, and the page itself.
import { Suspense, lazy, useEffect, useRef, useState, type ComponentType } from "react";
import { whenLoginNeeded } from "./api/client";
import { useSampling } from "./api/counters";
import { useEvents } from "./api/events";
import { queries, useMe, useStatus, type Me } from "./api/queries";
import { Question, perform } from "./parts/dialog";
import { Button } from "./parts/controls";
import { Icon, type IconName } from "./parts/icons";
import { Page } from "./parts/page";
import { ProblemBox } from "./parts/problem";
import { overall } from "./parts/states";
import { choose, useThemeOnPage } from "./parts/theme";
import { Toasts } from "./parts/toast";
import { ProblemError } from "./api/client";
import { Login, logout } from "./pages/login";
import { Overview } from "./pages/overview";
import { to, usePlace, type Place } from "./router";

type View = ComponentType<{ parts: string[]; query: URLSearchParams }>;
// The overview comes with the first file; a page that is not looked at is not loaded.
const page = (load: () => Promise<{ default: View }>) => lazy(load);
const VIEWS: Record<string, View> = {
  "": Overview,
  setup: page(() => import("./pages/setup")),
  pools: page(() => import("./pages/pools")),
  disks: page(() => import("./pages/disks")),
  volumes: page(() => import("./pages/volumes")),
  luns: page(() => import("./pages/luns")),
  targets: page(() => import("./pages/targets")),
  shares: page(() => import("./pages/shares")),
  users: page(() => import("./pages/users")),
  snapshots: page(() => import("./pages/snapshots")),
  sessions: page(() => import("./pages/sessions")),
  performance: page(() => import("./pages/performance")),
  jobs: page(() => import("./pages/jobs")),
  cluster: page(() => import("./pages/cluster")),
  changes: page(() => import("./pages/changes")),
  settings: page(() => import("./pages/settings")),
};

const NAVIGATION: { title: string; links: [string, string, IconName][] }[] = [
  { title: "Node", links: [["", "Overview", "overview"], ["performance", "Performance", "gauge"], ["jobs", "Jobs", "job"], ["cluster", "Cluster", "nodes"]] },
  {
    title: "Storage",
    links: [["pools", "Pools", "pool"], ["disks", "Disks", "disk"], ["volumes", "Volumes", "volume"], ["snapshots", "Snapshots", "snapshot"]],
  },
  {
    title: "Access",
    links: [["luns", "LUNs", "lun"], ["targets", "Targets and initiators", "target"], ["shares", "Shares", "share"], ["users", "Users and groups", "user"], ["sessions", "Sessions and opens", "session"]],
  },
  { title: "Manage", links: [["setup", "Set up", "wand"], ["changes", "Changes", "changes"], ["settings", "Settings", "settings"]] },
];

export function App() {
  useThemeOnPage();
  const me = useMe();
  useEffect(() => {
    // A session that has ended shows at the next look. Several looks may show it at once: one question is enough.
    whenLoginNeeded(() => {
      if (queries.getQueryData(["me"])) void queries.resetQueries({ queryKey: ["me"] });
    });
  }, []);
  const refused = me.error instanceof ProblemError && (me.error.problem.status === 401 || me.error.problem.status === 403);
  if (refused) {
    return (
      <>
        <Login />
        <Toasts />
      </>
    );
  }
  if (me.data) return <Frame me={me.data} />;
  if (me.error) {
    return (
      <main className="alone">
        <h1>Holdfast</h1>
        <ProblemBox error={me.error} />
        <Button look="primary" onPress={() => void me.refetch()}>Ask again</Button>
      </main>
    );
  }
  return <p className="waiting" role="status">Asking the node …</p>;
}

function Frame({ me }: { me: Me }) {
  useSampling();
  useEvents();
  const place = usePlace();
  const main = useRef<HTMLElement>(null);
  const [open, setOpen] = useState(false);
  const first = useRef(true);
  // Another page begins at its top and with its heading, also for the keyboard and for screen readers.
  useEffect(() => {
    setOpen(false);
    if (first.current) {
      first.current = false;
      return;
    }
    window.scrollTo(0, 0);
    const heading = main.current?.querySelector("h1");
    (heading ?? main.current)?.focus({ preventScroll: true });
  }, [place.path]);
  return (
    <div className="frame">
      <a
        className="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to the page
      </a>
      <Bar me={me} open={open} onMenu={() => setOpen(!open)} />
      <Side place={place} open={open} onClose={() => setOpen(false)} />
      <main ref={main} id="main" tabIndex={-1}>
        <Suspense fallback={<p className="waiting" role="status">Loading the page …</p>}>
          <Shown place={place} />
        </Suspense>
      </main>
      <Question />
      <Toasts />
    </div>
  );
}

function Shown({ place }: { place: Place }) {
  const [first = "", ...parts] = place.parts;
  const View = VIEWS[first];
  if (!View) {
    return (
      <Page title="There is no such page">
        <p>Nothing is at <code>{place.path}</code>. The <a href={to()}>overview</a> leads everywhere.</p>
      </Page>
    );
  }
  return <View parts={parts} query={place.query} />;
}

function Bar({ me, open, onMenu }: { me: Me; open: boolean; onMenu: () => void }) {
  const status = useStatus();
  const theme = useThemeOnPage();
  const looks = status.data && !status.error ? overall(status.data) : null;
  return (
    <header className="bar">
      <Button look="quiet" icon={open ? "close" : "menu"} aria-label="Navigation" aria-expanded={open} aria-controls="side" onPress={onMenu} />
      <a className="brand" href={to()}>
        <img src="./favicon.svg" alt="" width="26" height="26" /> Holdfast
      </a>
      <span className="node-name">{status.data?.node}</span>
      {looks && (
        <a className={`verdict ${looks.tone}`} href={to()}>
          <span className="lamp" aria-hidden="true" />
          <span className="text">{looks.word}</span>
        </a>
      )}
      {status.error && <span className="verdict bad"><span className="lamp" aria-hidden="true" />no answer</span>}
      <span className="gap" />
      <Button look="quiet" icon="moon" aria-label={theme === "dark" ? "Use light colours" : "Use dark colours"} onPress={() => choose(theme === "dark" ? "light" : "dark")} />
      <span className="me" title={`Role: ${me.role}`}><Icon name="user" /><span className="text">{me.user}</span></span>
      {!me.local && <Button look="quiet" icon="out" aria-label="Log out" onPress={() => void perform(logout, "You are logged out.")} />}
    </header>
  );
}

function Side({ place, open, onClose }: { place: Place; open: boolean; onClose: () => void }) {
  const here = place.parts[0] ?? "";
  return (
    <nav
      id="side"
      className={open ? "side open" : "side"}
      aria-label="Pages"
      onKeyDown={(event) => {
        if (event.key === "Escape") onClose();
      }}
    >
      {NAVIGATION.map((group) => (
        <div key={group.title}>
          <h2>{group.title}</h2>
          <ul>
            {group.links.map(([name, title, icon]) => (
              <li key={name}>
                <a href={name ? to(name) : to()} aria-current={here === name ? "page" : undefined} onClick={onClose}>
                  <Icon name={icon} />
                  {title}
                </a>
              </li>
            ))}
          </ul>
        </div>
      ))}
    </nav>
  );
}
