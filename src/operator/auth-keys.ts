/** The control server of a tailnet, as far as the operator needs it: auth keys for new nodes, and the nodes themselves. */

/** A key with which one node may join once, without anybody's approval. */
export interface AuthKey {
  readonly key: string;
  readonly id: string;
  readonly expiresAtMs: number;
}

/** A node as the control server knows it. */
export interface TailnetDevice {
  readonly hostname: string;
  readonly addresses: readonly string[];
}

/** A node in the list of all of them. */
export interface TailnetNodeEntry {
  /** As `device` and the others take it. */
  readonly id: string;
  readonly name: string;
  readonly tags: readonly string[];
  /** Public half, `mkey:<hex>`; empty where the server does not say it. */
  readonly machineKey: string;
}

/** A name of the tailnet that several nodes may answer for. */
export interface TailnetService {
  /** `svc:<label>` */
  readonly name: string;
  readonly tags: readonly string[];
  /** e.g. `tcp:443` */
  readonly ports: readonly string[];
  readonly comment: string;
  readonly annotations: Readonly<Record<string, string>>;
  /** Chosen by the control server; must be repeated in updates. Empty: to be chosen. */
  readonly addrs: readonly string[];
}

/** Tailscale Services. All methods throw TailcastError `CONTROL_FAILED`. */
export interface TailnetServices {
  get(name: string, signal: AbortSignal): Promise<TailnetService | undefined>;
  list(signal: AbortSignal): Promise<readonly TailnetService[]>;
  put(service: TailnetService, signal: AbortSignal): Promise<void>;
  /** Removing what is gone succeeds. */
  remove(name: string, signal: AbortSignal): Promise<void>;
}

/**
 * Adapters: `tailscale-api.ts`, `headscale-api.ts`. What is gone already is gone: removing it again succeeds.
 *
 * All methods throw TailcastError `CONTROL_FAILED` when the server refuses or does not answer.
 */
export interface TailnetControl {
  /** What nodes are given as `--login-server`. */
  readonly loginServer: string;
  /** Whether nodes get certificates for their names. */
  readonly issuesCertificates: boolean;
  /** Undefined where the control server has none. */
  readonly services?: TailnetServices;
  createKey(
    wanted: {
      readonly tags: readonly string[];
      readonly lifetimeMs: number;
      /** For people who look at the list of keys, where the server keeps one: letters, digits, spaces, hyphens. */
      readonly description: string;
    },
    signal: AbortSignal,
  ): Promise<AuthKey>;
  /** Whether a node could still join with the key. */
  keyUsable(id: string, signal: AbortSignal): Promise<boolean>;
  revokeKey(id: string, signal: AbortSignal): Promise<void>;
  /** Undefined when there is no such node any more. */
  device(id: string, signal: AbortSignal): Promise<TailnetDevice | undefined>;
  /** Every node of the tailnet. */
  allDevices(signal: AbortSignal): Promise<readonly TailnetNodeEntry[]>;
  /** @returns false when there is no such node any more */
  deleteDevice(id: string, signal: AbortSignal): Promise<boolean>;
  /** Lets these routes of a node through, and no others. */
  approveRoutes(id: string, routes: readonly string[], signal: AbortSignal): Promise<void>;
  setTags(id: string, tags: readonly string[], signal: AbortSignal): Promise<void>;
}
