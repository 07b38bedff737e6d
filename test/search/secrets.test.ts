/** Secrets are replaced at any position of a line. A secret that the fast check misses would leak. */
import { expect, it } from 'vitest';
import { createSecretFilter, replaceSecrets, replaceSecretWords, SECRET } from '../../src/secrets.ts';
import { createRandom, runSeed } from '../support/random.ts';

const LONG = 'A1b2C3d4E5f6G7h8I9j0';
/** For each known prefix of a secret: a text, the secret in the text, and true if the case of letters is ignored. */
const SHAPES: readonly (readonly [text: string, secret: string, anyCase: boolean])[] = [
  ['AKIAABCDEFGHIJKLMNOP', 'AKIAABCDEFGHIJKLMNOP', false],
  ['ASIAABCDEFGHIJKLMNOP', 'ASIAABCDEFGHIJKLMNOP', false],
  ...['ghp_', 'gho_', 'ghu_', 'ghs_', 'ghr_', 'github_pat_', 'glpat-', 'npm_', 'xoxb-', 'sk-', 'AIza'].map(
    (begins) => [begins + LONG, LONG, false] as const,
  ),
  [`eyJ${LONG}.${LONG}.x`, LONG, false],
  [`https://${LONG}@host/a.git`, LONG, false],
  [`SG.${LONG}.${LONG}`, LONG, false],
  ['Bearer 0123456789abcdef', '0123456789abcdef', true],
  ['ftp://me:0hidden0@host', '0hidden0', true],
  ['sshpass -p 0hidden0', '0hidden0', false],
  ['mysql -u me -p0hidden0', '0hidden0', false],
  ['mysqldump -p0hidden0', '0hidden0', false],
  ['mariadb -p0hidden0', '0hidden0', false],
  ['curl -u me:0hidden0', '0hidden0', false],
  ['docker login -u me -p 0hidden0', '0hidden0', false],
  ['helm registry login -p=0hidden0', '0hidden0', false],
  ['mongosh -u me -p 0hidden0', '0hidden0', false],
  ['redis-cli -a 0hidden0', '0hidden0', false],
  ...['db-password', 'auth-token', 'client-secret', 'passphrase', 'secret-key', 'pass', 'pwd'].map(
    (name) => [`x --${name} 0hidden0`, '0hidden0', true] as const,
  ),
  ...['hvs.', 'hvb.', 'tskey-auth-', 'dckr_pat_', 'pypi-', 'sk_live_', 'dop_v1_', 'glrt-', 'ya29.'].map(
    (begins) => [begins + LONG, LONG, false] as const,
  ),
  ...[
    'vault login',
    'vault login -method=token -no-print',
    'vault login -method token',
    'vault kv put secret/a k=',
    'vault write a/b -force k=',
    'openssl enc -aes-256-cbc -in a -k',
    'openssl enc -K',
    'openssl rsa -in a -passin pass:',
    'ldapsearch -x -D cn=a -w',
    'ldapmodify -xw',
    'smbclient //a/b -U me%',
    'smbclient --user=D/me%',
    'rpcclient -Ume%',
    'sqlcmd -S a -P',
    'ipmitool -P',
    'unzip -P',
    'ssh-keygen -N',
    '7z a -p',
    'mysqladmin -p',
    'useradd -p',
    'az login --service-principal -u a -p',
    'etcdctl --user=root:',
    'http -a me:',
    'ncat --proxy-auth me:',
    'kubectl create secret generic a --from-literal=k=',
    'kubectl create secret generic a --from-literal=b=c --from-literal k=',
    'htpasswd -b file me',
    'htpasswd -nbB -C 10 me',
    'keytool -storepass',
    'aws configure set aws_secret_access_key',
    'snmpwalk -v3 -u me -A',
    'snmpget -v2c -c',
    'xfreerdp /u:me /v:host /p:',
    'nmcli device wifi connect a password',
    'kinit me <<<',
    'docker login -u me --password-stdin <<<',
    'sqlplus -s scott/',
    'redis-cli AUTH',
    '127.0.0.1:6379> auth me',
    'openssl passwd -6',
    'mkpasswd -m sha-512',
    'rabbitmqctl add_user me',
    'wpa_passphrase net',
    'net user me',
    'mc alias set a https://host:9000 me',
  ].map(
    (begins) =>
      [begins + (/[=:%/]$|7z|min/.test(begins) ? '' : ' ') + '0hidden0', '0hidden0', false] as const,
  ),
  ...["ALTER USER a WITH PASSWORD '", "IDENTIFIED BY '", 'identified with b as "', "PASSWORD('"].map(
    (begins) => [`${begins}0hidden0${begins.slice(-1)}`, '0hidden0', true] as const,
  ),
  ['ALTER ROLE a PASSWORD $x$0hidden0 0hidden0$x$', '0hidden0', false],
  ['echo "me:0hidden0" | sudo chpasswd', '0hidden0', false],
  ['echo 0hidden0 | docker login --password-stdin', '0hidden0', false],
  ['printf "0hidden0" | kinit me', '0hidden0', false],
  ...['password', 'passwd', 'token', 'secret', 'api-key', 'apikey'].map(
    (name) => [`x --${name} 0hidden0`, '0hidden0', true] as const,
  ),
  ...['password', 'db_passwd', 'secret', 'token', 'api_key', 'access_key', 'accesskey'].map(
    (name) => [`${name}=0hidden0`, '0hidden0', true] as const,
  ),
];

it('a secret of each shape is replaced, whatever is before and behind it', () => {
  const random = createRandom(runSeed());
  const anything = (): string =>
    Array.from({ length: random.below(12) }, () =>
      'ab zZ09_-:/.{"é日\u{1f44d}\x7f'.charAt(random.below(18)),
    ).join('');
  for (let round = 0; round < 40; round += 1)
    for (const [text, secret, anyCase] of SHAPES) {
      const flipped = Array.from(text, (letter) => (random.below(2) === 0 ? letter.toUpperCase() : letter));
      const shown = anyCase ? flipped.join('') : text;
      const line = `${anything()} ${shown} ${anything()}`;
      const replaced = replaceSecrets(line);
      expect(replaced, line).toContain(SECRET);
      expect(replaced.toLowerCase(), line).not.toContain(secret.toLowerCase());
    }
});

it('a line without one stays as it is', () => {
  for (const line of ['', 'a', 'ls -la /srv', 'mare curo token keys', 'zoo skim 10://', 'ab'.repeat(5000)])
    expect(replaceSecrets(line)).toBe(line);
});

const TOKEN = 'Ab1-Cd2_Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv1';
/** Texts with common secrets. The filter keeps the text before `|`, and removes the secret after it. */
it.each(
  `
  Authorization: Bearer |${TOKEN}
  curl -H "authorization: token |${TOKEN}"
  curl -H 'Cookie: |session=${TOKEN}'
  set-cookie: |id=${TOKEN}; Path=/
  |eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N
  aws_secret_access_key = |${TOKEN}
  AWS_SESSION_TOKEN=|${TOKEN}
  "SecretAccessKey": "|${TOKEN}"
  https://b.s3.amazonaws.com/a?X-Amz-Signature=|${'fe5f80f7'.repeat(8)}
  "private_key": "|-----BEGIN PRIVATE KEY-----\\nMIIE
  https://storage.googleapis.com/a?X-Goog-Signature=|${'fe5f80f7'.repeat(8)}
  |GOCSPX-${TOKEN}
  |1//0${TOKEN}
  AccountName=x;AccountKey=|${TOKEN}==;EndpointSuffix=core.windows.net
  SharedAccessKeyName=Root;SharedAccessKey=|${TOKEN}=
  https://x.blob.core.windows.net/c?sv=2020-08-04&sig=|${TOKEN}%3D&se=2030
  |abc8Q~${TOKEN}
  az login --service-principal -u app -p |${TOKEN} --tenant t
  oc login -u me -p |${TOKEN} https://x
  oc login --token=|${TOKEN}
  |github_pat_${TOKEN}
  |glpat-${TOKEN}
  |gldt-${TOKEN}
  |glcbt-${TOKEN}
  |glptt-${TOKEN}
  |glft-${TOKEN}
  |glsoat-${TOKEN}
  |glimt-${TOKEN}
  |glagent-${TOKEN}
  |xoxb-${TOKEN}
  |xapp-1-${TOKEN}
  https://hooks.slack.com/services/|T00000000/B00000000/${TOKEN}
  https://discord.com/api/webhooks/123456789012345678/|${TOKEN}
  https://x.webhook.office.com/webhookb2/|0123-4567@89/IncomingWebhook/${TOKEN}
  |hf_${TOKEN}
  |sk_test_${TOKEN}
  |whsec_${TOKEN}
  |shpat_${TOKEN}
  |sq0csp-${TOKEN}
  |glsa_${TOKEN}
  |sntrys_${TOKEN}
  |lin_api_${TOKEN}
  |nvapi-${TOKEN}
  |ATATT3${TOKEN}
  |PMAK-${TOKEN}
  |eyJrIjoi${TOKEN}
  |K10${'0a1b2c3d'.repeat(8)}::server:${TOKEN}
  |abcdefghij1234.atlasv1.${TOKEN}
  x --password=|${TOKEN}
  x --private-key=|${TOKEN}
  x --auth-key=|${TOKEN}
  REDISCLI_AUTH=|${TOKEN} redis-cli
  SECRET_KEY_BASE=|${TOKEN}
  DJANGO_SECRET_KEY='|${TOKEN}'
  SIGNING_KEY=|${TOKEN}
  ENCRYPTION_KEY=|${TOKEN}
  PrivateKey = |${TOKEN}
  PresharedKey = |${TOKEN}
  client-key-data: |${TOKEN}
  id-token: |${TOKEN}
  token: |${TOKEN}
  "identitytoken": "|${TOKEN}"
  amqp://me:|${TOKEN}@db
  machine host login me password |${TOKEN}
`
    .trim()
    .split('\n')
    .map((line) => line.trim().split('|')),
)('of a secret after %j nothing is left: %j', (kept = '', secret = '') => {
  const shown = createSecretFilter()(kept + secret);
  expect(shown.startsWith(kept + SECRET)).toBe(true);
  expect(shown).not.toContain(TOKEN);
});

it.each([
  [
    '-----BEGIN PGP PRIVATE KEY BLOCK-----',
    'Version: x',
    '',
    'QUJDREVGR0hJSktMTU5P',
    '=ab1+',
    '-----END PGP PRIVATE KEY BLOCK-----',
  ],
  ['Private-Lines: 2', 'QUJDREVGR0hJSktMTU5P', 'Private-MAC: 0a1b'],
  [
    '-----BEGIN RSA PRIVATE KEY-----',
    'Proc-Type: 4,ENCRYPTED',
    'DEK-Info: AES-128-CBC,00',
    '',
    'QUJDREVGR0hJSktMTU5P',
    '-----END RSA PRIVATE KEY-----',
  ],
])('of a key that begins with %j nothing is left', (...lines) => {
  const filter = createSecretFilter();
  expect([...lines, 'ls'].map(filter)).toEqual([...lines.map(() => SECRET), 'ls']);
});

/** Parts of lines at each of which a rule starts a search, but finds no secret. */
const SLOW_WORDS = [
  'eyJaaaaaaaa-',
  '-eyJaaaaaaaa.a',
  'eyJ-',
  'ghp_AAAAAAAAAAAAAAA.',
  'sk-A.',
  'Bearer  aaaaaaa ',
  'curl -u ====a ',
  'curl.',
  ' curl -u aaaaaaaaaaaaaaaa',
  'mysql ',
  'mysql -p',
  'a://b:c ',
  'a+a+a://',
  '://',
  'sshpass -p    ',
  ' --password=',
  '--token ====',
  ' --a-a-a-',
  'docker login ',
  'mongo -p',
  'redis-cli -a ',
  'password_password"',
  'aapi_key  ',
  'token==',
  '-----BEGIN ',
  'vault login -a ',
  'vault login -aaaaaaaaaaaaaaaaaaaaa',
  'vault write a=',
  ' -k openssl',
  ' -w ldapsearch',
  'smbclient -U a%',
  'smbclient -U "a',
  '--from-literal k=',
  '--from-literal=a"b=',
  'htpasswd -b -C 1 a ',
  'htpasswd -aaaaaaaaaaaaaaaaa ',
  'identified with by ',
  "password ''",
  'password $a$ ',
  'aaaa:aaaa"chpasswd:',
  ' a:b | chpasswd',
  'echo "a kinit',
  "echo 'a' | sudo ",
  'tskey-ya29.',
  'SG.aaaaaaaaaaaaaaaa.',
  'a://aaaaaaaaaaaaaaaaaaaaaaaa',
  'sqlplus -s a',
  'redis-cli auth ',
  'mkpasswd -m a ',
  'mc alias set a b ',
  'net user aaaa ',
  '<<<kinit',
  '<<<',
  '<<<a',
  'kinit<<<',
  'gldt-A.',
  'shp_A.',
  '1//0a ',
  'K10aaaaaaaaaaaaaaaa:',
  '8Q~aaa',
  'a.atlasv1.',
  '&sig=a ',
  'hooks.slack.com/a',
  'Cookie: a"',
  'machine a login a ',
  'auth_key="',
  ' password nmcli',
];

/** Returns the CPU time of a call, in milliseconds. */
function cpuOf(act: () => void): number {
  const before = process.cpuUsage();
  act();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

it.each(SLOW_WORDS)('a long line of %j costs as much CPU as short lines with the same text', (word) => {
  const [short, long] = [8192, 262_144].map((length) => word.repeat(length / word.length)) as [
    string,
    string,
  ];
  const lines = Math.floor(long.length / short.length);
  replaceSecrets(short);
  const inShortLines = cpuOf(() => {
    for (let line = 0; line < lines; line += 1) replaceSecrets(short);
  });
  const inLongLine = cpuOf(() => replaceSecrets(long));
  // a rule with quadratic cost would need 32 times as much CPU
  expect(inLongLine).toBeLessThan(8 * inShortLines + 100);
});

/** Words that repeat the start of a rule. Rules are slow on such text unless they first look for an option. */
const COSTLY_WORDS = [
  'curl ',
  'mysql ',
  'docker login ',
  'mongo ',
  'redis-cli ',
  ' --a-a-a-token',
  'a'.repeat(60) + 'token ',
  ' -p x mysql',
  ' -uu curl',
  'curl -u "',
  'password="',
];

it.each([...SLOW_WORDS, ...COSTLY_WORDS])('a line of %j costs at most 0.2 µs for each character', (word) => {
  const line = word.repeat(16_384 / word.length);
  replaceSecrets(line);
  const cheapest = Math.min(
    ...Array.from({ length: 5 }, () =>
      cpuOf(() => {
        for (let round = 0; round < 8; round += 1) replaceSecrets(line);
      }),
    ),
  );
  expect((cheapest * 1000) / (8 * line.length)).toBeLessThan(0.2);
});

it('a quoted value may be as long as a recording', () => {
  for (const begin of ['password="', "token='", ' --token "', 'mysql -p"', 'curl -u "a:'])
    expect(replaceSecrets(`${begin}${'a '.repeat(2 ** 20)}`).length).toBeLessThan(100);
});

it.each([
  ['curl -uuser:hunter2222 http://host', `curl -uuser:${SECRET} http://host`],
  ['curl -su "user:hunter 2222" http://host', `curl -su "user:${SECRET}" http://host`],
  ['curl --proxy-user me:hunter2222 x', `curl --proxy-user me:${SECRET} x`],
  ['curl x | tar -u a:hunter2222', 'curl x | tar -u a:hunter2222'],
  ['curl -s -u a:hunter2222 x; mysql -phunter2222', `curl -s -u a:${SECRET} x; mysql -p${SECRET}`],
  ['Authorization: Basic dXNlcjpodW50ZXIyMjI=', `Authorization: Basic ${SECRET}`],
  ['curl -H "Authorization: hunter2222" x', `curl -H "Authorization: ${SECRET}" x`],
  ["-H 'X-Api-Key: hunter2222'", `-H 'X-Api-Key: ${SECRET}'`],
  ['X-Vendor-Key: hunter2222', `X-Vendor-Key: ${SECRET}`],
  ['DB_PASS=hunter2222 app', `DB_PASS=${SECRET} app`],
  ['MYSQL_PWD=hunter2222 mysql', `MYSQL_PWD=${SECRET} mysql`],
  ['pwd=hunter2222', `pwd=${SECRET}`],
  ['PWD=/srv/data', 'PWD=/srv/data'],
  ['OLDPWD=/srv/data', 'OLDPWD=/srv/data'],
  ['PASSWORD="hunter2222 with space" app', `PASSWORD="${SECRET}" app`],
  ["PASSWORD='hun,ter;2222' app", `PASSWORD='${SECRET}' app`],
  [String.raw`{"password": "hunt\"er 2222", "b": 1}`, `{"password": "${SECRET}", "b": 1}`],
  ['http://u:p@ss:hunter2222@h/', `http://u:${SECRET}@h/`],
  ['redis://:hunter2222@h', `redis://:${SECRET}@h`],
  ['see http://host:8080/a@b', 'see http://host:8080/a@b'],
  ['app --db-pass hunter2222', `app --db-pass ${SECRET}`],
  ['app --dbpass=hunter2222', `app --dbpass=${SECRET}`],
  ['app --password "hunter 2222" x', `app --password ${SECRET} x`],
  ["mysql -p'hunter 2222' db", `mysql -p${SECRET} db`],
  ['app --bypass cache --token-file /a', 'app --bypass cache --token-file /a'],
  ["ALTER USER a PASSWORD 'it''s hunter2222' LOGIN", `ALTER USER a PASSWORD ${SECRET} LOGIN`],
  [
    "create secret generic a --from-literal='k=hunter 2222' -n b",
    `create secret generic a --from-literal='k=${SECRET}' -n b`,
  ],
  ['htpasswd -nb me hunter2222 | tee x', `htpasswd -nb me ${SECRET} | tee x`],
  ['vault login hunter2222 && id', `vault login ${SECRET} && id`],
  ['sqlplus scott/hunter2222@db', `sqlplus scott/${SECRET}@db`],
  ['net user me hunter2222 /add', `net user me ${SECRET} /add`],
  ...[
    'net user me /delete',
    'mc alias set a https://host me',
    'snmpwalk -v3 -u me host',
    'the auth method is x',
    'see https://user@host/a',
    'htpasswd -c file me',
    'openssl x509 -in a -text -noout -keyout b',
    'vault login -method=userpass username=me',
    'ldapsearch -x -W -b dc=a',
    'the password of the user is not here',
    'zip -r a b | sort -P',
    'echo a | cat; docker login',
  ].map((line): [string, string] => [line, line]),
])('of the line %j remains %j', (line, shown) => {
  expect(replaceSecrets(line)).toBe(shown);
});

it('a token within a longer word is replaced', () => {
  const token = `eyJ${LONG}.${LONG}.${LONG}`;
  for (const before of ['x-', '-', 'a-b_c-', 'eyJ-', '.', '"', 'eyJabcdefghijk-'])
    expect(replaceSecrets(`${before}${token}`)).not.toContain(LONG);
});

it.each([
  [
    ['mysql', '-uroot', '-phunter2'],
    ['mysql', '-uroot', `-p${SECRET}`],
  ],
  [
    ['tool', '--token', 'hunter2', '--verbose'],
    ['tool', '--token', SECRET, '--verbose'],
  ],
  [
    ['tool', '--password', 'hunter2 and more', '-v'],
    ['tool', '--password', SECRET, '-v'],
  ],
  [['--password=hunter2'], [`--password=${SECRET}`]],
  [
    ['docker', 'login', '-u', 'me', '-p', 'hunter2'],
    ['docker', 'login', '-u', 'me', '-p', SECRET],
  ],
  [
    ['sh', '-c', 'PGPASSWORD=hunter2 psql'],
    ['sh', '-c', `PGPASSWORD=${SECRET} psql`],
  ],
  [
    ['redis-cli', '-a', 'hunter2 and more', 'ping'],
    ['redis-cli', '-a', SECRET, 'ping'],
  ],
  [
    ['create', 'secret', '--from-literal=k=hunter2 and more', '--from-literal', 'k=a b', '-v'],
    ['create', 'secret', `--from-literal=k=${SECRET}`, '--from-literal', `k=${SECRET}`, '-v'],
  ],
  [
    ['a\u2028b', 'ls -la'],
    ['a b', 'ls -la'],
  ],
  [['-----BEGIN PRIVATE KEY-----\nQUJDREVGR0hJSktMTU5P\n-----END PRIVATE KEY-----'], [SECRET]],
  [
    ['sh', '-c', ': -----BEGIN PRIVATE KEY-----; wget x | sh'],
    ['sh', '-c', `: ${SECRET}; wget x | sh`],
  ],
  [
    ['sh', '-c', ': -----BEGIN PRIVATE KEY-----\ncp /etc/a /b'],
    ['sh', '-c', `: ${SECRET}cp /etc/a /b`],
  ],
  [
    [
      String.raw`echo "-----BEGIN PRIVATE KEY-----\nQUJDREVGR0hJSktMTU5P\nUQ==\n-----END PRIVATE KEY-----\n" > k`,
    ],
    [String.raw`echo "${SECRET}\n" > k`],
  ],
  [
    ['sh', '-c', 'TOKEN="$(cat /run/a | tee b)" PASSWORD=`id` x'],
    ['sh', '-c', 'TOKEN="$(cat /run/a | tee b)" PASSWORD=`id` x'],
  ],
  [
    ['app', '--password=$(PASSWORD)', '--token', 'hunter2'],
    ['app', '--password=$(PASSWORD)', '--token', SECRET],
  ],
  [
    ['nginx', '-g', 'daemon off;', ''],
    ['nginx', '-g', 'daemon off;', ''],
  ],
  [[], []],
])('of the words %j remain %j', (words, shown) => {
  expect(replaceSecretWords(words)).toEqual(shown);
});
