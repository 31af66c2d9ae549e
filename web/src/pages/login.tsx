// Who are you? For those who come over the network.
import { useState } from "react";
import { Form } from "react-aria-components";
import { problemOf } from "../api/client";
import { Button, Field } from "../parts/controls";
import { ProblemBox } from "../parts/problem";

const JSON_AND_OURS = { "content-type": "application/json", "X-Holdfast-Request": "1" };

export function Login() {
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<unknown>(null);

  async function send() {
    setBusy(true);
    setProblem(null);
    try {
      const response = await fetch("v1/login", { method: "POST", headers: JSON_AND_OURS, body: JSON.stringify({ user, password }) });
      if (!response.ok) throw await problemOf(response);
      // From the beginning: what another user saw before is not shown to this one.
      window.location.reload();
    } catch (error) {
      setProblem(error);
      setPassword("");
    } finally {
      setBusy(false);
    }
  }

  return (
    <main className="alone">
      <h1><img src="./favicon.svg" alt="" width="34" height="34" /> Holdfast</h1>
      <Form
        className="card"
        onSubmit={(event) => {
          event.preventDefault();
          void send();
        }}
      >
        <h2>Log in</h2>
        <Field label="User" value={user} onChange={setUser} autoComplete="username" required autoFocus />
        <Field label="Password" type="password" value={password} onChange={setPassword} autoComplete="current-password" required />
        {problem !== null && <ProblemBox error={problem} />}
        <Button look="primary" type="submit" isDisabled={busy || !user || !password}>{busy ? "Asking …" : "Log in"}</Button>
      </Form>
    </main>
  );
}

export async function logout() {
  const response = await fetch("v1/logout", { method: "POST", headers: JSON_AND_OURS, body: "{}" });
  if (!response.ok) throw await problemOf(response);
  window.location.reload();
}
