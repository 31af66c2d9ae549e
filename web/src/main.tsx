// Where the pages begin.
import { QueryClientProvider } from "@tanstack/react-query";
import { createRoot } from "react-dom/client";
import { queries } from "./api/queries";
import { App } from "./app";
import "./style/base.css";
import "./style/frame.css";
import "./style/controls.css";
import "./style/views.css";
import "./style/tables.css";

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <QueryClientProvider client={queries}>
      <App />
    </QueryClientProvider>,
  );
}
