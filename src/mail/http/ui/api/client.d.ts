// The types of client.js. Bodies and answers are those of spec/openapi.yaml, of which these are the parts that most need.

export declare const UNREACHABLE: 0;

export declare class MAILError extends Error {
  constructor(status: number, detail: string, facts?: { pending?: PendingCall[] });
  readonly status: number;
  readonly detail: string;
  readonly pending: PendingCall[];
  readonly permanent: boolean;
  get isUnreachable(): boolean;
}

/** A call that a paused task waits for: an action to approve, or a question. */
export interface PendingCall {
  call_id: string;
  name: string;
  arguments: Record<string, unknown>;
  agent?: string;
  needs_approval?: boolean;
  reviewers?: string[];
  [more: string]: unknown;
}

export type TaskStatus = "running" | "paused" | "completed" | "failed" | "cancelled";

export interface Task {
  task_id: string;
  status: TaskStatus;
  title: string | null;
  start_time: string;
  seq: number;
  pending_tool_calls?: PendingCall[];
  [more: string]: unknown;
}

/** The body of `POST /message`. */
export interface Message {
  body: string;
  subject?: string;
  entrypoint?: string;
  task_id?: string;
  files?: string[];
  resume_from?: "user_response" | "breakpoint_tool_call";
  kwargs?: Record<string, unknown>;
  output_schema?: Record<string, unknown>;
  [more: string]: unknown;
}

/** `response` is a JSON text if an `output_schema` was given; null if the task has not answered. */
export interface Answer {
  task_id: string;
  status: TaskStatus;
  response: string | null;
  pending: PendingCall[];
}

/** An event of a task. Those of what happens now have no id, and `seq` is 0. */
export interface TaskEvent {
  event: string;
  id: string | null;
  seq: number;
  data: { timestamp: string; task_id: string; description?: string; extra_data?: any; [more: string]: any };
}

export interface StreamOptions {
  live?: boolean;
  deltas?: boolean;
  items?: boolean;
  signal?: AbortSignal;
  onState?: (state: "live" | "reconnecting") => void;
}

export interface AskOptions extends StreamOptions {
  key?: string;
  onEvent?: (event: TaskEvent) => void;
}

export interface FileReference {
  id: string;
  name: string;
  type: string;
  bytes: number;
}

export interface RequestOptions {
  query?: Record<string, string | number | boolean | null | undefined>;
  body?: unknown;
  content?: BodyInit;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  token?: string | null;
}

export declare class MAILClient {
  constructor(
    url: string,
    options?: { token?: string | null | (() => string | null); onReach?: (isReached: boolean) => void },
  );
  request(method: string, path: string, options?: RequestOptions): Promise<Response>;
  json(method: string, path: string, options?: RequestOptions): Promise<any>;
  send(message: string | Message, options?: { key?: string; signal?: AbortSignal }): Promise<string>;
  ask(message: string | Message, options?: AskOptions): Promise<Answer>;
  approve(
    id: string,
    callId: string,
    options?: AskOptions & { arguments?: Record<string, unknown>; reason?: string },
  ): Promise<Answer>;
  reject(id: string, callId: string, options?: AskOptions & { reason?: string }): Promise<Answer>;
  reply(id: string, results: string | { call_id: string; content: string }[], options?: AskOptions): Promise<Answer>;
  task(id: string, options?: { signal?: AbortSignal }): Promise<Task>;
  approvals(options?: { cursor?: string; signal?: AbortSignal }): Promise<any>;
  stream(id: string, options?: StreamOptions & { after?: number }): AsyncGenerator<TaskEvent, void>;
  cancel(id: string): Promise<any>;
  upload(file: File | Blob, options?: { name?: string; signal?: AbortSignal }): Promise<FileReference>;
  file(id: string): Promise<Blob>;
}

export declare function newKey(): string;

/** Read Server-Sent Events of a body, wherever its chunks are cut. */
export declare function parseEvents(
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): AsyncGenerator<{ event: string; id: string | null; data: string }, void>;

export declare function parseEvent(event: { event: string; id: string | null; data: string }): TaskEvent;

/** Follow a stream through the connections that `open` makes, until one is answered with 204. */
export declare function follow(
  open: (after: number, signal: AbortSignal) => Promise<Response>,
  options: { after: number; signal?: AbortSignal; onState?: StreamOptions["onState"] },
): AsyncGenerator<{ event: string; id: string | null; data: string }, void>;
