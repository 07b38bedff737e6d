/** What to do about each error, for the command line and `docs/errors.md`. A new code needs a line here. */
import type { ErrorCode } from '../errors.ts';

export const ERROR_ADVICE: Readonly<Record<ErrorCode, string>> = {
  INTERNAL: 'A defect of tailcast. The log has the details; please report it.',
  CONFIG_INVALID: 'Change the settings that the message names. See `docs/config.md`.',
  USAGE: 'Run the command with `--help`.',
  START_FAILED: 'Change the address, folder or right that the message names.',
  ALREADY_RUNNING: 'Stop the process that the message names, or give this one another folder.',
  IDENTITY_UNKNOWN:
    'The connection did not come through the tailnet, or through `tailscale serve` without PROXY protocol: set `proxyProtocol` and `serve --proxy-protocol` alike.',
  IDENTITY_UNAVAILABLE: 'See that tailscaled runs and is not overloaded: `tailcast doctor gateway`.',
  IDENTITY_MALFORMED:
    'The caller’s node has an expired key, is shared in from another tailnet, or has no owner: see it in the admin console.',
  TOKEN_REQUIRED: 'Use the kubeconfig that `npm start` prints; each start has a new token.',
  GRANT_MALFORMED: 'Mend the grant that the message names in the tailnet policy. See `docs/identity.md`.',
  TAILNET_UNAVAILABLE: 'Start tailscaled, or name its socket (`--socket`).',
  TAILNET_DIAL_FAILED:
    'Let the policy allow this node to reach the address, and see that the other node is online.',
  CERTIFICATE_UNAVAILABLE:
    'Turn on HTTPS certificates for the tailnet, mend the certificate files, or use `--tls self-signed`.',
  REQUEST_NOT_CANONICAL: 'Send the path in its plain form: no `//`, no `.` segments, no encoded slashes.',
  HEADER_REFUSED: 'Remove the header that the message names.',
  HEADERS_TOO_LARGE: 'Send fewer or shorter headers; a proxy in between may add them.',
  TARGET_TOO_LONG:
    'Send a shorter target: fewer or shorter selectors, or a shorter command in `kubectl exec`. The limit is 256 KiB, of which 16 KiB for the path.',
  REQUEST_MALFORMED: 'Something that is no HTTP client, or a broken one, has connected.',
  REQUEST_TIMEOUT: 'The client is too slow, or the network lost it.',
  NOT_FOUND: 'The path is not one of the gateway’s own.',
  METHOD_REFUSED: 'Use a method that Kubernetes uses.',
  UPGRADE_REFUSED:
    'Use kubectl 1.27 or newer, or a client that speaks SPDY/3.1 or the Kubernetes WebSocket protocols.',
  IMPERSONATION_REFUSED:
    'Remove `--as`, `--as-group` and `--as-uid`, also from the kubeconfig (`as:`). To act with other rights, change the grant. See `docs/migration.md`.',
  POLICY_REFUSED: 'What was asked cannot be recorded and recording is enforced, or the policy refuses it.',
  ACCESS_REVIEW_REFUSED:
    'With `--access-review` the gateway asks before sessions and proxies: give the user `create` on the subresource that the message names.',
  ACCESS_REVIEW_FAILED:
    'With `--access-review` nothing passes that could not be asked about: see that the API server answers and that the user may create SelfSubjectAccessReviews (`system:basic-user`).',
  ARCHIVE_DAMAGED:
    'The stored object is not as it was written: look at the disk or the bucket, restore it from a copy, and check it with `tailcast verify`.',
  ARCHIVE_SEALED:
    'Give the key that it was sealed with in the file of `--seal-keys` (`TAILCAST_SEAL_KEYS`): keys that recordings were sealed with stay there as long as these do.',
  ACCESS_ENDED: 'The node, its owner or a grant is not what it was when this began: connect again.',
  SESSION_LIMIT:
    'The policy limits how long a session may last or be silent: connect again. See `docs/identity.md`.',
  RECORDING_REQUIRED:
    'No recorder took the session: see that one is running and reachable on port 80 (`tailcast doctor gateway`).',
  RECORDER_UNAVAILABLE: 'As above; the message names what was tried.',
  PORTAL_UNTRUSTED:
    'Name the gateway’s tag in the recorder’s `--trusted-gateways`, and who may see what in its `--viewers`.',
  RECORDER_LOST:
    'The recorder went away in mid-session and no other took over: run two. What was not acknowledged is delivered when one is back.',
  OUTPUT_LOST:
    'Look at the disk under `--output-buffer-directory`: it did not give back what was written to it. The recording is `interrupted`.',
  SESSION_VIOLATED:
    'The client sent bytes that are not the protocol it asked for; the recording says where it ended.',
  UPLOAD_REFUSED: 'Name the gateway’s tag in the recorder’s `--uploaders`.',
  UPLOAD_MALFORMED: 'Something else than a gateway talks to the recorder.',
  UPLOAD_TOO_LARGE: 'Raise `maxSessionBytes`, or find out what writes so much.',
  SEARCH_UNAVAILABLE:
    'The message says why. Searches that take too long are ended: name a time (`after:7d`) or more words. A Node without node:sqlite or FTS5 cannot search; `tailcast index status` tells. Recording goes on in any case.',
  SEARCH_BUSY: 'Try again. Two searches run at a time and eight wait.',
  UPLOAD_CONFLICT: 'Two uploaders claim one session, or the recorder’s spool was replaced.',
  STORE_FULL:
    'Free space on the volume of the store or the spool. If `tailcast_recorder_over_quota` is 1, raise `--max-store-bytes` or release holds.',
  STORE_FAILED:
    'Check the folder or bucket, its credentials and its free space; the log of the recorder has the details.',
  RECORDER_BUSY:
    'The recorder’s log names the node that has its share of the slots. Check that node, or run more recorders.',
  VIEW_REFUSED: 'Ask for a rule in the recorder’s `viewers` setting.',
  RECORDING_UNKNOWN: 'List the recordings that exist with `tailcast ls`.',
  PLAY_INDEX_UNAVAILABLE:
    'The page still plays it. The log of the recorder says why there is no index; a running session has none.',
  HOST_REFUSED: 'Open the page under a name that is in the settings, or add the name there.',
  UPSTREAM_UNAVAILABLE: 'See that the API server is up and may be reached: `tailcast doctor gateway`.',
  UPSTREAM_BROKEN: 'What stands between the gateway and the API server is not the API server.',
  UPSTREAM_REFUSED_ACCOUNT:
    'Clients that honour `Retry-After` retry. Shortly after a restart of the API server this ends by itself; if it lasts, give the account its role again: `tailcast doctor gateway`.',
  OVERLOADED: 'Wait and repeat; run another gateway when it persists.',
  SHUTTING_DOWN: 'Repeat: another gateway answers, or this one in a moment.',
  CLEANUP_INCOMPLETE: 'It says what is left and why. Mend that and run `tailcast operator --cleanup` again.',
  CONTROL_FAILED: 'See the operator’s credentials for the control server’s API and what they may do.',
  OBJECT_NOT_OURS: 'Rename the resource, or remove the object that is in its way.',
  AUDIT_LOG_UNUSABLE:
    'Name the file to which the API server writes its audit log, whole: a copy that was cut, or compressed, is none.',
  RECORDING_MALFORMED: 'The file is no recording, or was cut off outside of tailcast.',
  RECORDER_UNREACHABLE: 'Check the address (`--recorder`), and that a recorder runs there.',
  WIRE_MALFORMED: 'Something that does not speak the protocol has connected.',
  WIRE_LIMIT: 'A peer sent a frame or a message larger than is accepted.',
};
