/** Interface to the control server of a tailnet: auth keys for new nodes, and the nodes themselves. */

/** A key with which exactly one node can join the tailnet, without approval. */
export interface AuthKey {
  readonly key: string;
  readonly id: string;
  readonly expiresAtMs: number;
}

/** A node, as the control server reports it. */
export interface TailnetDevice {
  readonly hostname: string;
  readonly addresses: readonly string[];
  /** Public half of the machine key, `mkey:<hex>`; undefined if the server does not report the key. */
  readonly machineKey?: string | undefined;
}

/** A node in the list of all nodes. */
export interface TailnetNodeEntry {
  /** Id of the node, for `device` and the other methods. */
  readonly id: string;
  readonly name: string;
  readonly tags: readonly string[];
  /** Public half of the machine key, `mkey:<hex>`; empty if the server does not report the key. */
  readonly machineKey: string;
}

/** A Tailscale Service: a name in the tailnet that several nodes may serve. */
export interface TailnetService {
  /** Name of the Tailscale Service: `svc:<label>`. */
  readonly name: string;
  readonly tags: readonly string[];
  /** Ports with their protocol, e.g. `tcp:443`. */
  readonly ports: readonly string[];
  readonly comment: string;
  readonly annotations: Readonly<Record<string, string>>;
  /**
   * Addresses of the Service. An update must send the existing addresses again. If empty, the control server assigns
   * addresses.
   */
  readonly addrs: readonly string[];
}

/** Tailscale Services. All methods throw TailcastError `CONTROL_FAILED`. */
export interface TailnetServices {
  get(name: string): Promise<TailnetService | undefined>;
  list(): Promise<readonly TailnetService[]>;
  put(service: TailnetService): Promise<void>;
  /** Removes a Tailscale Service, if it exists. */
  remove(name: string): Promise<void>;
}

/**
 * Adapters: `tailscale-api.ts`, `headscale-api.ts`. Removing a missing object succeeds.
 *
 * All methods throw TailcastError `CONTROL_FAILED` if the server rejects a request or does not respond.
 */
export interface TailnetControl {
  /** Value of `--login-server` for nodes. */
  readonly loginServer: string;
  /** True if the control server issues TLS certificates for the names of nodes. */
  readonly issuesCertificates: boolean;
  /** Access to Tailscale Services; undefined if the control server does not support them. */
  readonly services?: TailnetServices;
  createKey(wanted: {
    readonly tags: readonly string[];
    readonly lifetimeMs: number;
    /** Description that users see in the control server's list of keys. Only letters, digits, spaces and hyphens. */
    readonly description: string;
  }): Promise<AuthKey>;
  /** Returns true if a node can still join with the key. */
  keyUsable(id: string): Promise<boolean>;
  revokeKey(id: string): Promise<void>;
  /** Returns undefined if the node does not exist. */
  device(id: string): Promise<TailnetDevice | undefined>;
  /** Returns all nodes of the tailnet. */
  allDevices(): Promise<readonly TailnetNodeEntry[]>;
  /** @returns false if the node does not exist */
  deleteDevice(id: string): Promise<boolean>;
  /** Approves these routes of a node, and withdraws the approval of its other routes. */
  approveRoutes(id: string, routes: readonly string[]): Promise<void>;
  setTags(id: string, tags: readonly string[]): Promise<void>;
}
