from regard.commands.app import main

main()
