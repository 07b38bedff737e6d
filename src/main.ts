process.stdout.write('tailcast\n');
