/** `GET /playground/tools` and `POST /playground/tools/run`, as `src/dragoman/console/playground/views.py` describes them. */

import type { JsonObject } from "../playground/apis/api.ts";

export interface PlaygroundTool {
  name: string;
  description: string;
  parameters: JsonObject;
  signature: string;
  server: string;
}

export interface ToolSourceProblem {
  server: string;
  message: string;
}

export interface PlaygroundToolsView {
  tools: PlaygroundTool[];
  problems: ToolSourceProblem[];
}

export interface PlaygroundImage {
  media_type: string;
  data: string;
}

export interface PlaygroundRunView {
  text: string;
  is_error: boolean;
  is_cut: boolean;
  run_ms: number;
  images: PlaygroundImage[];
}
