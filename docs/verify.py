#!/usr/bin/env python3
"""Verifies the evidence of a store in a directory: verify.py <store> [<raw public key, base64> ...].

Needs Python 3.8 and no packages. docs/evidence.md describes the format.
Exit codes: 0: no faults with the named keys, 1: faults, 3: no faults, but no key was named, or no log has entries.
"""
import base64, hashlib, json, pathlib, re, sys

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
G = (15112221349535400772501151409588531511454012693041857206046113283949847762202, 4 * pow(5, -1, P) % P)

def add(a, b):
    t = D * a[0] * b[0] * a[1] * b[1]
    return ((a[0] * b[1] + b[0] * a[1]) * pow(1 + t, -1, P) % P, (a[1] * b[1] + a[0] * b[0]) * pow(1 - t, -1, P) % P)

def mul(k, p):
    r = (0, 1)
    while k:
        r, p, k = add(r, p) if k & 1 else r, add(p, p), k >> 1
    return r

def point(b):
    y = int.from_bytes(b, 'little')
    sign, y = y >> 255, y % 2**255
    xx = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(xx, (P + 3) // 8, P)
    x = x if (x * x - xx) % P == 0 else x * pow(2, (P - 1) // 4, P) % P
    return (x if x & 1 == sign else P - x, y) if (x * x - xx) % P == 0 else (0, 0)

def good(key, message, signature):
    r, s = signature[:32], int.from_bytes(signature[32:], 'little')
    h = int.from_bytes(hashlib.sha512(r + key + message).digest(), 'little')
    return s < L and mul(s, G) == add(point(r), mul(h % L, point(key)))

sha = lambda data: hashlib.sha256(data).hexdigest()
UNCHECKED = 'checkpoints, unfinished sessions, takeovers by another recorder, documents of holds, parts in other stores'
store, faults, notices = pathlib.Path(sys.argv[1]), [], []
raw = [base64.b64decode(k) for k in sys.argv[2:]] or [
    base64.b64decode(''.join(f.read_text().split('\n')[1:-2]))[-32:] for f in store.glob('.evidence/keys/*.pem')]
keys, entries, hashes = {sha(k)[:32]: k for k in raw}, {}, {}  # entries and hashes: by log and number

def check(ok, *what):
    ok or faults.append(' '.join(map(str, what)))

def signed(what, message, key, signature):
    check(key in keys and good(keys[key], message, base64.b64decode(signature)), what, 'is not signed')

def same(path, seal):
    data, chain, at = path.read_bytes() if path.is_file() else b'', bytes(32), 0
    for size, digest in seal['blocks']:
        check(sha(data[at:at + size]) == digest, path, 'differs in bytes', at, 'to', at + size)
        chain, at = hashlib.sha256(chain + bytes.fromhex(digest)).digest(), at + size
    check(chain.hex() == seal['chain'] and at == len(data), path, 'is not what was sealed')

# List all logs before reading any: recorders may add entries that refer to other logs.
for log, segments in [(log, sorted(log.iterdir())) for log in store.glob('.evidence/logs/*')]:
    prev, n = '0' * 64, 0
    for segment in segments:
        *lines, last = segment.read_bytes().splitlines()
        for line in lines:
            entry = json.loads(line)
            check(entry['n'] == n and entry['prev'] == prev, log.name, 'entry', n, 'does not continue the log')
            entries[log.name, n], prev, n = dict(entry['event'], time=entry['time']), sha(line), n + 1
            hashes[log.name, n - 1] = prev
        s = json.loads(last)['signature']
        check((s['log'], s['n'], s['hash']) == (log.name, n - 1, prev), segment, 'ends with another entry')
        signed(segment, b'tailcast log 1\n%s\n%d\n%s\n' % (log.name.encode(), n - 1, prev.encode()), s['key'], s['ed25519'])
ends, holds, durable, documents, removals, gone = {}, {}, {}, {}, {}, set()
for (log, n), e in entries.items():
    kind = e['kind']
    check(kind != 'lost', log, 'entry', n, 'says that acknowledged bytes are lost')
    if kind == 'end':
        ends.setdefault(e['recording'], []).append(e)
    elif kind == 'start':
        durable[log, n] = e.get('durable', 0)
    elif kind == 'durable':
        durable.update({(log, start): size for start, size in e['sessions']})
    elif kind in ('held', 'released'):
        holds.setdefault(e['recording'], []).append((log, n, e))
    elif kind == 'document':
        documents[e['name']] = e['sha256']
    elif kind == 'witness':
        head = e['head']
        check(hashes.get((head['log'], head['n'])) == head['hash'], head['log'], 'is older than entry', n, 'of', log, 'says')
for (log, n), e in entries.items():
    if e['kind'] == 'documentRemoved':
        documents.pop(e['name'], None)
    elif e['kind'] == 'removed':  # a later hold cancels the removal; other logs are compared by time
        marks = holds.get(e['recording'], [])
        before = [h for of, m, h in marks if (m < n if of == log else h['time'] <= e['time'])]
        held = max(before, key=lambda h: h['at'], default={'kind': 'released'})['kind'] == 'held'
        if e['time'] >= removals.get(e['recording'], ('', held))[0]:
            removals[e['recording']] = e['time'], held
        later = any(h['kind'] == 'held' and h not in before for of, m, h in marks)
        e['reason'] != 'unverified' and not later and gone.add(e['recording'])
for name, digest in documents.items():
    path = store / name
    check(path.is_file() and sha(path.read_bytes()) == digest, name, 'is missing or changed')
for path in store.glob('events/*/*.ndjson'):
    name = '/'.join(path.parts[-3:])
    if name not in documents:
        *lines, last = path.read_bytes().splitlines(keepends=True)
        s = json.loads(last)['signature']
        signed(name, b'tailcast events 1\n%s\n' % name.encode() + b''.join(lines), s['key'], s['ed25519'])
for sidecar in store.glob('*/*.json'):
    text = sidecar.read_bytes()
    body, line = re.fullmatch(rb'(.*\n)  "signature": (\{.*\})\n\}\n', text, re.S).groups()
    document, s, cast = json.loads(text), json.loads(line), sidecar.with_suffix('.cast')
    name, e = cast.parent.name + '_' + cast.stem, document['evidence']
    signed(sidecar, b'tailcast sidecar 1\n' + body, s['key'], s['ed25519'])
    check(document['recording']['key'] == cast.parent.name + '/' + cast.name, sidecar, 'belongs to another recording')
    same(cast, e['cast'])
    check(cast.with_suffix('.notes').exists() == ('notes' in e), name, 'has lost its notes, or found some')
    'notes' in e and same(cast.with_suffix('.notes'), e['notes'])
    start, header = entries.get((e['log'], e['start']), {}), (cast.read_bytes() if cast.is_file() else b'').split(b'\n')[0] + b'\n'
    check(start.get('kind') == 'start' and start['header'] == sha(header), name, 'has no start in the log')
    check(document['upload']['bodyBytes'] >= durable.get((e['log'], e['start']), 0), name, 'has lost acknowledged bytes')
    check(all(end['cast']['chain'] == e['cast']['chain'] for end in ends.get(name, [])), name, 'differs from its entry in the log')
for cast in store.glob('*/*.cast'):
    name = cast.parent.name + '_' + cast.stem
    cast.with_suffix('.json').exists() or notices.append(ascii(name) + ' is unverified: it has no sidecar')
for name in ends:
    check(name in gone or (store / (name[::-1].replace('_', '/', 1)[::-1] + '.cast')).is_file(), name, 'is missing')
    check(name in gone or (store / (name[::-1].replace('_', '/', 1)[::-1] + '.json')).is_file(), name, 'has no sidecar')
for name, (_, held) in removals.items():  # only the last removal can have removed the recording
    path = name[::-1].replace('_', '/', 1)[::-1]
    files = ['.cast', '.json'] if name in ends else ['.cast']
    kept = all((store / (path + f)).is_file() for f in files) and not any(name in f or path in f for f in faults)
    check(not held or kept, name, 'was removed while it was held')
    held and kept and notices.append(name + ' is unchanged, but the log contains its removal while it was held')
proved = len(sys.argv) > 2 and len(entries) > 0
print('\n'.join(faults) or 'no faults' if proved or faults else 'unverified: no key was named, or no log has entries')
print('\n'.join(['not checked: ' + UNCHECKED, *notices]))
sys.exit(1 if faults else 0 if proved else 3)
