/** Commands of Java and shells whose secrets an event can hide without hiding a command. */
import { expect, it } from 'vitest';
import { canRunWords } from '../../src/secrets.ts';

it.each([
  ['zsh', '-c', 'repeat --password reboot'],
  ['java', '-cp', '--password', 'example.Main'],
  ['java', '-cp', '/app', '-Dpassword', 'example.Main'],
  ['java', '-cp', 'token=x:/tmp', 'example.Main'],
  ['java', '--class-path=token=x:/tmp', 'example.Main'],
  ['java', '-Xbootclasspath/a:token=x:/tmp', '-jar', '/app.jar'],
  ['java', '@/password=arguments'],
  ['java', '-cp', 'password:/tmp', 'example.Main'],
  ['java', '-Dtoken=', 'example.Main'],
  ['java', '-Dx=Bearer', 'example.Main'],
  ['sh', '-c', 'java -Dx=Bearer example.Main'],
])('the secret of %s %s %s may hide a command or the path of code', (...words) => {
  expect(canRunWords(words)).toBe(true);
});

it.each([
  'tini -- java -XX:MaxRAMPercentage=75.0 -Dpassword=x -jar /app.jar --token=x',
  'java -javaagent:/a.jar --add-opens java.base/java.lang=ALL-UNNAMED -cp /app example.Main --password x',
])('the secrets of %s hide no command', (command) => {
  expect(canRunWords(command.split(' '))).toBe(false);
});
