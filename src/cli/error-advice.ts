/** Advice for each error, for the command line and `docs/errors.md`. Each error code must have an entry. */
import type { ErrorCode } from '../errors.ts';

/** Advice for each error code. */
export const ERROR_ADVICE: Readonly<Record<ErrorCode, string>> = {
  INTERNAL: 'Report this defect of tailcast, and include the log lines of the error.',
  CONFIG_INVALID: 'Change the settings that the message names. See `docs/config.md`.',
  USAGE: 'Run the command with `--help`.',
  START_FAILED: 'Change the address, directory or permission that the message names.',
  ALREADY_RUNNING: 'Stop the process that the message names, or use another directory.',
  IDENTITY_UNKNOWN:
    'The connection came from outside the tailnet, or from `tailscale serve` without PROXY protocol. Set ' +
    '`--proxy-protocol require` on the gateway and `--proxy-protocol 2` in `tailscale serve`.',
  IDENTITY_UNAVAILABLE: 'Check with `tailcast doctor gateway` that tailscaled runs and is not overloaded.',
  IDENTITY_MALFORMED:
    'The node of the caller has an expired key, is shared from another tailnet, or has no owner. Check the node ' +
    'in the admin console.',
  TOKEN_REQUIRED: 'Use the kubeconfig that `npm start` prints. Each start creates a new token.',
  GRANT_MALFORMED: 'Fix the grant that the message names in the tailnet policy. See `docs/identity.md`.',
  TAILNET_UNAVAILABLE: 'Start tailscaled, or name its socket with `--socket`.',
  TAILNET_DIAL_FAILED:
    'Allow this connection in the tailnet policy, and check that the other node is online.',
  CERTIFICATE_UNAVAILABLE:
    'Enable HTTPS certificates in the tailnet, fix the certificate files, or use `--tls self-signed`.',
  CLUSTER_MISSING:
    'Use the server address that `tailcast kubeconfig --all HOST` writes. See `docs/clusters.md`.',
  CLUSTER_REFUSED:
    'Check the name, and `clusters` in your rule of the tailnet policy. See `docs/clusters.md`.',
  CLUSTER_MISMATCH:
    'Use the same cluster name in TLS, `Host` and path, and a separate connection for each cluster.',
  REQUEST_NOT_CANONICAL: 'Send a plain path without `//`, `.` segments and encoded slashes.',
  HEADER_REFUSED: 'Remove the header that the message names.',
  HEADERS_TOO_LARGE: 'Send fewer or shorter headers. A proxy in front of the gateway may add headers.',
  TARGET_TOO_LONG:
    'Send shorter selectors, or a shorter command in `kubectl exec`. The limit is 256 KiB for the target and 16 ' +
    'KiB for its path or selectors.',
  REQUEST_MALFORMED: 'Check the client and proxies in front of the gateway.',
  REQUEST_TIMEOUT: 'The client or the network is too slow. Retry the request.',
  NOT_FOUND: 'Check the URL.',
  METHOD_REFUSED: 'Use a method of the Kubernetes API.',
  UPGRADE_REFUSED:
    'Use kubectl 1.27 or newer, or a client for SPDY/3.1 or the WebSocket protocols of Kubernetes.',
  IMPERSONATION_REFUSED:
    'Remove `--as`, `--as-group` and `--as-uid`, also from the kubeconfig (`as:`). To act with other rights, ' +
    'change the grant. See `docs/migration.md`.',
  POLICY_REFUSED:
    'The gateway cannot record this request, or the policy refuses it. Run `tailcast policy explain`.',
  ACCESS_REVIEW_REFUSED:
    'With `--access-review`, the user needs the verb `create` for each session. Give the user this right on the ' +
    'subresource that the message names.',
  ACCESS_REVIEW_FAILED:
    'Check that the API server responds, and that the user may create SelfSubjectAccessReviews (`system:basic-user`).',
  ARCHIVE_DAMAGED: 'Check the disk or bucket, restore the file from a backup, and run `tailcast verify`.',
  ARCHIVE_SEALED: 'Add the key of this recording to the file of `--seal-keys` (`TAILCAST_SEAL_KEYS`).',
  ACCESS_ENDED: 'The tailnet node, its owner or a grant changed. Connect again.',
  SESSION_ENDED:
    'Before you start the session again, ask the person or the owner of the rule that the message names.',
  SESSION_REFUSED: 'Read the message of the API server: the pod may be gone, or you may lack a right.',
  SESSION_LIMIT:
    'The policy limits the duration and the idle time of a session. Connect again. See `docs/identity.md`.',
  ACCESS_REQUEST_PENDING: 'Run the command in the message, which waits for the approval, or ask an approver.',
  ACCESS_REQUEST_REFUSED:
    'Read the reason in the message. Send another request with `kubectl tailcast request`.',
  ACCESS_REQUEST_UNAVAILABLE:
    'Apply `deploy/access` to the cluster, as `docs/access.md` describes, and check that the API server responds.',
  ACCESS_REQUEST_UNKNOWN: 'List the requests with `kubectl tailcast requests`.',
  ACCESS_REQUEST_CONFLICT:
    'List the requests with `kubectl tailcast requests`, and decide again if necessary.',
  RECORDING_REQUIRED:
    'Check with `tailcast doctor gateway` that a recorder runs, and that the gateway reaches port 80 of the recorder.',
  RECORDER_UNAVAILABLE: 'Check the recorders that the message names with `tailcast doctor gateway`.',
  PORTAL_UNTRUSTED:
    'Set `--trusted-gateways` of the recorder to the tag of the gateway, and `--viewers` to the rules for viewers.',
  RECORDER_LOST: 'Run two recorders. The gateway delivers unacknowledged output when a recorder is back.',
  OUTPUT_LOST: 'Check the disk of the temporary directory (TMPDIR). The recording is `interrupted`.',
  SESSION_VIOLATED: 'The client sent bytes that violate its protocol. Update or replace the client.',
  UPLOAD_REFUSED: 'Add the tag of the gateway to `--uploaders` of the recorder.',
  UPLOAD_MALFORMED:
    'The client of the recorder is not a gateway. Check `--uploaders` and the tailnet policy.',
  UPLOAD_TOO_LARGE: 'Raise `--max-session-bytes`, or find the program that writes this output.',
  SEARCH_UNAVAILABLE:
    'The message names the reason. Add a time (`after:7d`) or more words to a slow search. Check the index with ' +
    '`tailcast index status`.',
  SEARCH_BUSY:
    'Retry the search. A recorder runs at most two searches at a time, one per viewer; eight more wait.',
  UPLOAD_CONFLICT: 'Two uploaders use the same session, or the spool of the recorder was replaced.',
  STORE_FULL:
    'Free space on the volume of the store or the spool. If `tailcast_recorder_over_quota` is 1, raise ' +
    '`--max-store-bytes` or release holds.',
  STORE_FAILED:
    'Check the directory or bucket, its credentials and its free space. The log of the recorder has the details.',
  RECORDER_BUSY: 'Check the tailnet node that the recorder’s log names, or run more recorders.',
  VIEW_REFUSED: 'Ask the administrator of the recorder for a rule in `--viewers`.',
  RECORDING_UNKNOWN: 'List the recordings with `tailcast ls`.',
  PLAY_INDEX_UNAVAILABLE:
    'The player plays the recording without an index. The log of the recorder has the reason.',
  ORDER_REFUSED:
    'To end or pause sessions, the viewer needs a rule with =end in `--viewers`. To moderate ' +
    'a session, a viewer must be a moderator in the grant of the session’s user.',
  ORDER_IMPOSSIBLE:
    'Try again after the gateway reconnected. Tailscale’s API-server proxy accepts no orders such as end and pause.',
  ORDER_UNCONFIRMED: 'Check whether the session still runs, and try again.',
  HOST_REFUSED: 'Use another host name of the recorder, or add this name to `--hosts`.',
  UPSTREAM_UNAVAILABLE: 'Check with `tailcast doctor gateway` that the API server runs and is reachable.',
  UPSTREAM_BROKEN:
    'Check proxies between the gateway and the API server, and the server address in the kubeconfig.',
  UPSTREAM_REFUSED_ACCOUNT:
    'After a restart of the API server the error disappears soon, and clients that support `Retry-After` ' +
    'retry. If the error continues, give the account its role again; `tailcast doctor gateway` shows what is missing.',
  OVERLOADED: 'Retry later. If the error continues, run another gateway.',
  SHUTTING_DOWN: 'Retry: another gateway responds, or this gateway after its restart.',
  CLEANUP_INCOMPLETE: 'Fix the problems that the message names, and run `tailcast operator --cleanup` again.',
  CONTROL_FAILED: 'Check the operator’s credentials for the API of the control server, and their scopes.',
  OBJECT_NOT_OURS: 'Rename the resource, or remove the existing object with this name.',
  AUDIT_LOG_UNUSABLE: 'Name the complete, uncompressed file that the API server writes.',
  RECORDING_MALFORMED: 'Another program wrote or truncated the file.',
  RECORDER_UNREACHABLE: 'Check the address (`--recorder`), and that a recorder runs there.',
  WIRE_MALFORMED: 'The peer uses another protocol. Check the address and the program at this address.',
  WIRE_LIMIT: 'A peer sent a frame or message above the limit.',
};
